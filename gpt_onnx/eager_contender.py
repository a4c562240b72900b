"""PyTorch as a contender of gpt_onnx.runtime.bench: eager, or with its step compiled.

``python -m gpt_onnx.eager_contender`` is the process that the measurement starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.eager import CompiledGPT, EagerGPT
from gpt_onnx.eager_module import EagerModule
from gpt_onnx.errors import ProviderError
from gpt_onnx.model import GPT
from gpt_onnx.runtime.bench.serve import serve

NOTES = (
    "nothing is known of a cache in the source, so eager PyTorch computes the whole sequence for each token, "
    "and its process holds what the exporter imports as well",
)


class EagerContender:
    """Eager PyTorch as a contender of gpt_onnx.runtime.bench.

    Raises:
        ProviderError: if the device is not to be had.
        CheckpointError, InputError: if the source cannot be used.
    """

    def __init__(
        self, source: str, device: str, threads: int, compiled: bool = False, **described: str
    ) -> None:
        if device != "cpu" and not torch.cuda.is_available():
            raise ProviderError(f"PyTorch {torch.__version__} sees no CUDA card and cannot run on {device}.")
        torch.set_num_threads(threads)
        self._threads = threads
        self._model = load_eager(source, device, compiled, **described)
        self.start, self.step, self.scores = self._model.start, self._model.step, self._model.scores

    @property
    def facts(self) -> Mapping[str, Any]:
        """See gpt_onnx.runtime.bench.contender.Contender."""
        return {
            "device": self._model.device,
            "threads": self._threads,
            "vocab_size": self._model.vocab_size,
            "limit": self._model.limit,
            "notes": NOTES if isinstance(self._model, EagerModule) else (),
            **self._model.traffic,
            "versions": {"torch": torch.__version__, "numpy": metadata.version("numpy")},
            "details": {**self._model.details, **_card(self._model.device)},
        }


def _card(device: str) -> dict[str, str]:
    return {} if device == "cpu" else {"card": torch.cuda.get_device_name(device)}


def load_eager(
    source: str, device: str = "cpu", compiled: bool = False, **described: str
) -> EagerGPT | EagerModule:
    """Load a checkpoint, or run FILE.py:NAME for its module.

    Args:
        source: What to load.
        device: Where it runs.
        compiled: Whether torch.compile is to compile the step.
        **described: Files that describe a checkpoint, ``config`` and ``names``; a module needs neither here.

    Raises:
        CheckpointError, InputError, ExportError: if the source cannot be used.
    """
    make = CompiledGPT if compiled else EagerGPT
    if ".py:" not in source:
        return make(load_model(read_checkpoint(source, tokenizer="none", **described)), device)
    from gpt_onnx.export.gate import logits_in  # only here: the exporter's imports take time and memory
    from gpt_onnx.export.user_code import load_module

    module = load_module(source)
    if isinstance(module, GPT):
        return make(module, device)
    return EagerModule(module, logits_in, device, compiled)


def main() -> None:
    """Serve one source to the process that started this one."""
    serve(
        lambda order: EagerContender(order["source"], order["device"], order["threads"], **order["options"])
    )


if __name__ == "__main__":
    main()
