"""onnxruntime-genai: one of our bundles in its loop in C++, its cache and its search.

It feeds the token that it chose itself, so a step needs none from the measurement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
from _peer import main, one_row, size_of
from numpy.typing import NDArray


def _overlay(threads: int) -> str:
    options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1, "log_id": "onnxruntime-genai"}
    return json.dumps({"model": {"decoder": {"session_options": options}}})


class Genai:
    """See gpt_onnx.runtime.bench.contender.Contender."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._path, self._threads = Path(order["source"]), order["threads"]
        described = json.loads((self._path / "genai_config.json").read_text(encoding="utf-8"))["model"]
        self._vocab_size, self._limit = described["vocab_size"], described["context_length"]
        config = og.Config(str(self._path))
        config.overlay(_overlay(self._threads))
        self._model = og.Model(config)
        self._generator: Any = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it is."""
        return {
            "device": "cpu",
            "threads": self._threads,
            "vocab_size": self._vocab_size,
            "limit": self._limit,
            "context_length": self._limit,
            "file_bytes": size_of(self._path / "onnx"),
            "versions": {name: metadata.version(name) for name in ("onnxruntime-genai", "onnxruntime")},
            "details": {"bundle": self._path.name},
        }

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """Make a generator with room for the last token too, which is chosen and not fed."""
        params = og.GeneratorParams(self._model)
        params.set_search_options(do_sample=False, max_length=capacity + 1, min_length=capacity + 1)
        self._generator = None  # its cache is freed before the next one is made
        self._generator = og.Generator(self._model, params)
        self._generator.append_tokens(np.array([one_row(rows, "onnxruntime-genai")], np.int32))
        return self._choose()

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Take the token that was chosen last."""
        return self._choose()

    def scores(self) -> NDArray[np.float32]:
        """Return the last logits."""
        logits: NDArray[np.float32] = self._generator.get_output("logits")
        return logits[:, -1].astype(np.float32)

    def _choose(self) -> list[int]:
        self._generator.generate_next_token()
        return [int(self._generator.get_next_tokens()[0])]


if __name__ == "__main__":
    main(Genai)
