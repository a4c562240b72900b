"""A bundle as a contender: gpt_onnx.runtime's engine, as a user runs it.

``python -m gpt_onnx.runtime.bench.bundle_contender`` is the process that the measurement starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.bundle import file_sizes
from gpt_onnx.errors import ProviderError
from gpt_onnx.runtime.decoder import Decoder
from gpt_onnx.runtime.engine import OnnxGPT
from gpt_onnx.runtime.providers import Device, import_onnxruntime, installed_versions
from gpt_onnx.runtime.sampling import Sampler, Sampling

from .bundle_facts import mean_kl, step_traffic
from .serve import serve


class BundleContender:
    """See the module; tokens are chosen by the runtime's own sampler at temperature 0."""

    def __init__(self, path: str, provider: str, threads: int) -> None:
        self._engine = OnnxGPT.load(path, provider, threads)
        self._sampler = Sampler(sampling=Sampling(temperature=0.0))
        self._decoder: Decoder | None = None
        self._logits: Sequence[NDArray[Any]] = []

    @property
    def facts(self) -> Mapping[str, Any]:
        """See Contender."""
        bundle = self._engine.bundle
        manifest = bundle.manifest
        return {
            "device": self._engine.provider,
            "threads": self._engine.threads,
            "vocab_size": self._engine.vocab_size,
            "limit": self._engine.limit,
            "context_length": manifest.model.context_length,
            "file_bytes": sum(file_sizes(bundle.path).values()),
            "kl": mean_kl(bundle),
            **step_traffic(bundle),
            "versions": {**installed_versions(), "numpy": metadata.version("numpy")},
            "details": {
                "model": manifest.name,
                "parameters": manifest.model.parameters,
                "target": manifest.target,
                "precision": manifest.precision,
                "layout": manifest.graph.layout,
                "attention": manifest.graph.attention,
                "opset": manifest.graph.opset,
                "checked": manifest.checked,
            },
        }

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """See Contender."""
        self._decoder = None  # its memory is free before the next one takes its own
        self._decoder = decoder = self._engine.decoder(len(rows), capacity)
        self._logits = decoder.append(rows)
        return self._chosen()

    def step(self, tokens: Sequence[int]) -> list[int]:
        """See Contender: as the engine's own loop goes on."""
        assert self._decoder is not None
        if len(tokens) == 1:
            self._logits = [self._decoder.step(tokens[0])]
        else:
            self._logits = [rows[0] for rows in self._decoder.extend([np.array([t]) for t in tokens])]
        return self._chosen()

    def scores(self) -> NDArray[np.float32]:
        """See Contender."""
        return np.stack(self._logits)

    def _chosen(self) -> list[int]:
        return [self._sampler.sample(logits, ()) for logits in self._logits]


def main() -> None:
    """Serve one bundle to the process that started this one; load time is without imports."""
    with contextlib.suppress(ProviderError):  # loading the bundle will raise it again, with the real device
        import_onnxruntime(Device(kind="cpu"))
    serve(lambda order: BundleContender(order["source"], order["device"], order["threads"]))


if __name__ == "__main__":
    main()
