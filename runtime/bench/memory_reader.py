"""The machine's memory as a contender: its prompt is a number of bytes, and a step reads them once.

``python -m gpt_onnx.runtime.bench.memory_reader`` is the process that the measurement starts. As many
threads as the contenders have read float32 numbers, each its own part, in the ways of KERNELS; the fastest
way counts. The libraries of linear algebra are kept to one thread each (ENVIRONMENT), so that none join in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contender import GreedyModel
from .serve import serve

ENVIRONMENT: Mapping[str, str] = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Variables that its process needs."""

COLUMNS = 2048  # of a part, as a matrix: a row and a vector of this length stay in the nearest cache
TRIALS = 3  # passes to find the fastest kernel with

Part = NDArray[np.float32]  # (R, COLUMNS)


def _times_vector(part: Part) -> Any:
    return part @ np.ones(COLUMNS, np.float32)


def _vector_times(part: Part) -> Any:
    return np.ones(part.shape[0], np.float32) @ part


def _dot(part: Part) -> Any:
    flat = part.reshape(-1)
    return np.dot(flat, flat)


KERNELS: Mapping[str, Callable[[Part], Any]] = {
    "matrix times vector": _times_vector,
    "vector times matrix": _vector_times,
    "dot": _dot,
    "max": np.max,
    "sum": np.sum,
}
"""Ways to read every number of a part once, all of which let other threads run."""


class MemoryReader(GreedyModel):
    """See the module; the tokens that it returns mean nothing."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)
        self._parts: dict[int, list[Part]] = {}
        self._kernels: dict[int, str] = {}
        self._size = 0

    @property
    def facts(self) -> Mapping[str, Any]:
        """See Contender; ``kernels`` tells which was the fastest for each number of bytes."""
        kernels = {str(size): name for size, name in self._kernels.items()}
        return {"device": "cpu", "threads": self._threads, "details": {"kernels": kernels}}

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """Take a number of bytes; at the first time, fill so many and find the fastest way to read them."""
        self._size = size = rows[0][0]
        if size not in self._parts:
            self._parts[size] = [self._part(size) for _ in range(self._threads)]
            self._kernels[size] = min(KERNELS, key=self._least_seconds)
        return [0]

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Read everything once."""
        self._read(KERNELS[self._kernels[self._size]])
        return [0]

    def scores(self) -> None:
        """There are none."""

    def _part(self, size: int) -> Part:
        rows = max(1, round(size / self._threads / COLUMNS / np.float32().nbytes))
        return np.ones((rows, COLUMNS), np.float32)

    def _read(self, kernel: Callable[[Part], Any]) -> None:
        list(self._pool.map(kernel, self._parts[self._size]))

    def _least_seconds(self, name: str) -> float:
        seconds = []
        for _ in range(TRIALS):
            before = time.perf_counter()
            self._read(KERNELS[name])
            seconds.append(time.perf_counter() - before)
        return min(seconds)


def main() -> None:
    """Serve the memory to the process that started this one."""
    serve(lambda order: MemoryReader(order["threads"]))


if __name__ == "__main__":
    main()
