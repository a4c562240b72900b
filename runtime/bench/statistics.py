"""Medians, 90th percentiles, and ratios of measurements that were made in pairs.

>>> Summary.of([3.0, 1.0, 2.0]).median
2.0
>>> Paired.of([4.0, 9.0], [2.0, 3.0]).ratio
2.5
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

MISSES = 0.05
"""How often an interval may miss the median that more rounds would settle at."""


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


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return an interval for the median, and how surely it holds it.

    It reaches from the k-th smallest value to the k-th largest, whatever the distribution: the median is
    outside if fewer than k of n values fell on one side of it, of which the chance is that of fewer than k
    heads in n throws, twice. k is the largest whose chance is at most MISSES, or 1 where there is none, as
    with fewer than 6 values.

    >>> median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    (1.0, 5.0, 0.9375)
    """
    count, ordered = len(values), sorted(values)
    tails = np.cumsum([math.comb(count, heads) for heads in range((count + 1) // 2)]) / 2.0 ** (count - 1)
    cut = max(1, int(np.count_nonzero(tails <= MISSES)))
    return ordered[cut - 1], ordered[-cut], float(1 - tails[cut - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """How many times faster one contender was than another: round by round, then the median.

    Both were measured within the same moments of each round, so that a busy moment of the machine slows
    both, and their ratio stays.
    """

    ratio: float
    """The median of ``rounds``; above 1 the contender was faster than the one it is compared with."""
    low: float
    """The interval of the ratio, see ``median_interval``."""
    high: float
    """Its other end."""
    confidence: float
    """How surely the interval holds the ratio that more rounds would settle at; 0 with one round."""
    rounds: tuple[float, ...]

    @classmethod
    def of_ratios(cls, rounds: tuple[float, ...]) -> Self:
        """Summarise ratios, one a round."""
        low, high, confidence = median_interval(rounds)
        return cls(ratio=float(np.median(rounds)), low=low, high=high, confidence=confidence, rounds=rounds)

    @classmethod
    def of(cls, baseline: Sequence[float], contender: Sequence[float]) -> Self:
        """Divide durations, one a round."""
        return cls.of_ratios(tuple(slow / fast for slow, fast in zip(baseline, contender, strict=True)))

    def pooled(self, other: Self) -> Self:
        """Return the same over the rounds of both."""
        return self.of_ratios(self.rounds + other.rounds)
