"""The bandwidth of the machine, measured in turns with the contenders.

There is no one number: an array that fits into the last-level cache is read several times faster than a
larger one. So arrays of two kinds are read: one far larger than that cache, and one for each size of step
among the contenders, to the nearest half power of two. A step's share is of the latter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from .contender import Burst
from .entrant import MEMORY, Entrant, Program
from .environment import available_memory, cache_bytes
from .memory_reader import ENVIRONMENT
from .plan import Point
from .report import MemorySpeed
from .runner import Runner
from .statistics import Summary

MIB = 2**20
TIMES_CACHE = 4  # how much larger than the last-level cache an array is that no cache holds
LEAST_BYTES, MOST_BYTES = 1024 * MIB, 8192 * MIB
SMALLEST_BYTES = 4 * MIB  # below it a pass takes no longer than handing it to threads
PASSES = 5
ENTRANT = Entrant(
    name="memory",
    kind=MEMORY,
    program=Program(module="gpt_onnx.runtime.bench.memory_reader", environment=ENVIRONMENT),
)


def beyond_caches() -> int:
    """Return the bytes of an array that no cache holds, within a quarter of the free memory."""
    wanted = min(max(LEAST_BYTES, TIMES_CACHE * max(cache_bytes().values(), default=0)), MOST_BYTES)
    free = available_memory()
    return wanted if free is None else max(SMALLEST_BYTES, min(wanted, free // 4))


def nearest_size(step_bytes: float, largest: int) -> int:
    """Return the size of the array that stands for a step that reads so many bytes."""
    size = round(2 ** (round(2 * math.log2(max(step_bytes, 1.0))) / 2))
    return min(max(size, SMALLEST_BYTES), largest)


def _speed(size: int, bursts: Iterable[Burst], kernel: str) -> MemorySpeed:
    passes = Summary.of(step for burst in bursts for step in burst.step_ms)
    return MemorySpeed(
        array_bytes=size,
        gb_per_s=size / 1e6 / passes.median,
        best_gb_per_s=size / 1e6 / passes.least,
        kernel=kernel,
    )


@dataclass(slots=True, kw_only=True)
class MachineMemory:
    """A reader of memory and the sizes that it reads."""

    largest: int = field(default_factory=beyond_caches)
    runner: Runner = field(default_factory=lambda: Runner(entrant=ENTRANT))
    sizes: list[int] = field(default_factory=list)

    def start(self, steps: Iterable[float], threads: int) -> None:
        """Start the process and read every size once."""
        near = {nearest_size(step, self.largest) for step in steps}
        self.sizes = sorted({*near, self.largest})
        self.runner.load("cpu", threads)
        self.read()
        self.runner.bursts.clear()  # the first readings include the search for the fastest kernel

    def read(self) -> None:
        """Take one turn for every size."""
        for size in self.sizes:
            self.runner.burst(Point(batch_size=1, prompt_tokens=size), [[size]], PASSES + 1)

    def speeds(self) -> list[MemorySpeed]:
        """Return what was found, the smallest array first; nothing if it was not started."""
        if not self.sizes:
            return []
        kernels = self.runner.ask("facts")["details"]["kernels"]
        return [
            _speed(point.prompt_tokens, bursts, kernels[str(point.prompt_tokens)])
            for point, bursts in self.runner.bursts.items()
        ]
