"""All logits of llama.cpp for windows of ids: the script that quality.py runs under llama.cpp's Python.

    python llama_cpp_logits.py q4_0.gguf windows.npy logits.npy 2

``windows.npy`` is (N, S); ``logits.npy`` becomes (N, S, V) in float32. Windows begin with an empty cache.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray


def _context(path: str, tokens: int, threads: int) -> tuple[Any, int]:
    """Load a model; return its context and the size of its vocabulary."""
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = tokens
    params.n_threads = params.n_threads_batch = threads
    vocab = llama_cpp.llama_model_get_vocab(model)
    return llama_cpp.llama_init_from_model(model, params), llama_cpp.llama_vocab_n_tokens(vocab)


def _batch(ids: NDArray[np.int64]) -> Any:
    """Return one sequence of which all logits are wanted."""
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for position, token in enumerate(ids.tolist()):
        batch.token[position], batch.pos[position] = token, position
        batch.n_seq_id[position], batch.seq_id[position][0], batch.logits[position] = 1, 0, True
    return batch


def _logits(context: Any, ids: NDArray[np.int64], vocab_size: int) -> NDArray[np.float32]:
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
    batch = _batch(ids)
    code = llama_cpp.llama_decode(context, batch)
    llama_cpp.llama_batch_free(batch)
    if code:
        raise RuntimeError(f"llama_decode returned {code} for {len(ids)} tokens.")
    pointer = ctypes.cast(llama_cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, (len(ids), vocab_size))


def main() -> None:
    model, windows_file, made, threads = sys.argv[1:]
    windows = np.load(windows_file)
    context, vocab_size = _context(model, windows.shape[1], int(threads))
    staging = Path(made).with_suffix(".part.npy")
    logits = np.lib.format.open_memmap(
        staging, mode="w+", dtype=np.float32, shape=(*windows.shape, vocab_size)
    )
    for index, ids in enumerate(windows):
        logits[index] = _logits(context, ids, vocab_size)
    logits.flush()
    os.replace(staging, made)


if __name__ == "__main__":
    main()
