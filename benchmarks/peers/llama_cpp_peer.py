"""llama.cpp, through the C functions that llama-cpp-python binds: no sampler, no text, one call a token.

Its own defaults: cache in float16, weights mapped or repacked, and flash attention, as it chooses.
``prepare`` quantises as the program llama-quantize does: q4_0 keeps the table of the head as q6_K.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from _peer import main, one_row, size_of
from numpy.typing import NDArray

FORMS = {"q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0}
CHUNK = 2048  # tokens in one call, llama.cpp's own default; it cuts them into pieces of 512


def prepare(source: Path, made: Path, form: str) -> None:
    """Quantise a GGUF file.

    Raises:
        RuntimeError: if llama.cpp cannot.
    """
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FORMS[form]
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(made).encode(), params)
    if code:
        raise RuntimeError(f"llama_model_quantize returned {code} for {source} as {form}.")


class LlamaCpp:
    """See gpt_onnx.runtime.bench.contender.Contender."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._path, self._threads = Path(order["source"]), order["threads"]
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            str(self._path).encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise ValueError(f"llama.cpp cannot load {self._path}.")
        self._context = self._make_context(order.get("options", {}))
        self._memory = llama_cpp.llama_get_memory(self._context)
        vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(vocab)

    def _make_context(self, options: Mapping[str, Any]) -> Any:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = llama_cpp.llama_model_n_ctx_train(self._model)
        params.n_batch = CHUNK
        params.n_threads = params.n_threads_batch = self._threads
        for name, value in options.items():
            setattr(params, name, value)
        return llama_cpp.llama_init_from_model(self._model, params)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it is."""
        limit = llama_cpp.llama_model_n_ctx_train(self._model)
        return {
            "device": "cpu",
            "threads": self._threads,
            "vocab_size": self._vocab_size,
            "limit": limit,
            "context_length": limit,
            "file_bytes": size_of(self._path),
            "versions": {"llama-cpp-python": metadata.version("llama-cpp-python")},
            "details": {"cpu": llama_cpp.llama_print_system_info().decode().strip()},
        }

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """Empty the cache and take a prompt."""
        llama_cpp.llama_memory_clear(self._memory, False)
        return self._choose(one_row(rows, "llama.cpp"))

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Take a token."""
        return self._choose(tokens)

    def scores(self) -> NDArray[np.float32]:
        """Return the last logits."""
        return self._logits[None].copy()

    def _choose(self, tokens: Sequence[int]) -> list[int]:
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        code = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(ids, len(tokens)))
        if code:
            raise RuntimeError(f"llama_decode returned {code} for {len(tokens)} tokens.")
        pointer = llama_cpp.llama_get_logits_ith(self._context, -1)
        address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        self._logits: NDArray[np.float32] = np.ctypeslib.as_array(address, (self._vocab_size,))
        return [int(self._logits.argmax())]


if __name__ == "__main__":
    main(LlamaCpp, prepare)
