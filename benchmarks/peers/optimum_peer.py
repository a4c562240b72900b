"""optimum: ORTModelForCausalLM over the graph that its own exporter makes of a Hugging Face gpt2 folder.

One forward call a token with ``past_key_values``, as ``generate`` makes it, without generate's own overhead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from _peer import main, size_of
from numpy.typing import NDArray
from optimum.onnxruntime import ORTModelForCausalLM

PACKAGES = ("optimum", "optimum-onnx", "onnxruntime", "transformers", "torch")


def _options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return options


def prepare(source: Path, made: Path, form: str) -> None:
    """Export with a cache."""
    model = ORTModelForCausalLM.from_pretrained(source, export=True, use_cache=True)
    model.save_pretrained(made)


class Optimum:
    """See gpt_onnx.runtime.bench.contender.Contender."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._path, self._threads = Path(order["source"]), order["threads"]
        torch.set_num_threads(self._threads)
        self._model = ORTModelForCausalLM.from_pretrained(
            self._path, session_options=_options(self._threads), use_io_binding=True
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it is."""
        config = self._model.config
        return {
            "device": "cpu",
            "threads": self._threads,
            "vocab_size": config.vocab_size,
            "limit": config.n_positions,
            "context_length": config.n_positions,
            "file_bytes": size_of(self._path),
            "versions": {name: metadata.version(name) for name in PACKAGES},
            "details": {"cache": "concatenated"},
        }

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """Take a prompt."""
        self._past: Any = None
        self._mask = torch.ones(len(rows), 0, dtype=torch.int64)
        return self._choose(torch.tensor(rows))

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Take a token a row."""
        return self._choose(torch.tensor(tokens)[:, None])

    def scores(self) -> NDArray[np.float32]:
        """Return the last logits."""
        scores: NDArray[np.float32] = self._logits.numpy()
        return scores

    @torch.inference_mode()
    def _choose(self, ids: torch.Tensor) -> list[int]:
        self._mask = torch.cat((self._mask, torch.ones_like(ids)), dim=1)
        end = self._mask.shape[1]
        positions = torch.arange(end - ids.shape[1], end)[None].expand_as(ids)
        outputs = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._past,
            use_cache=True,
        )
        self._past, self._logits = outputs.past_key_values, outputs.logits[:, -1]
        tokens: list[int] = self._logits.argmax(-1).tolist()
        return tokens


if __name__ == "__main__":
    main(Optimum, prepare)
