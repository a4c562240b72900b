"""Medians, 90th percentiles, and ratios of measurements that were made in pairs.

>>> Summary.of([3.0, 1.0, 2.0]).median
2.0
>>> Paired.of([4.0, 9.0], [2.0, 3.0]).ratio
2.5
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What many measurements of one thing say, in their unit."""

    median: float
    p90: float
    least: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Summarise at least one value; p90 is interpolated between the values beside it."""
        array = np.fromiter(values, np.float64)
        median, p90 = np.percentile(array, (50, 90))
        return cls(median=float(median), p90=float(p90), least=float(array.min()), count=array.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """How many times faster one contender was than another: round by round, then the median.

    Both were measured within the same moments of each round, so that a busy moment of the machine slows
    both, and their ratio stays.
    """

    ratio: float
    """The median of ``rounds``; above 1 the contender was faster than the one it is compared with."""
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, baseline: Sequence[float], contender: Sequence[float]) -> Self:
        """Divide durations, one a round."""
        rounds = tuple(slow / fast for slow, fast in zip(baseline, contender, strict=True))
        return cls(ratio=float(np.median(rounds)), rounds=rounds)

    def pooled(self, other: Self) -> Self:
        """Return the same over the rounds of both."""
        rounds = self.rounds + other.rounds
        return type(self)(ratio=float(np.median(rounds)), rounds=rounds)
