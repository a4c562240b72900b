"""Quantiles of values >= 0: exact up to EXACT of them, and from bins beyond, in memory that is bounded.

A bin holds the float32 numbers whose first 20 bits are the same, sign and exponent included: it is 2^-11 of
its values wide, and so far may a quantile of more than EXACT values be off. Least and largest are exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EXACT = 2**21
"""Values that are kept as they are: 16 MB."""
_SHIFT = 12  # bits of a float32 that do not count
_BINS = 2**31 >> _SHIFT  # the sign is always 0: 4 MB of counts


def _bin_of(values: Floats) -> NDArray[Any]:
    return np.right_shift(values.astype(np.float32).view(np.uint32), _SHIFT)


def _middle_of(index: int) -> float:
    first, last = index << _SHIFT, ((index + 1) << _SHIFT) - 1
    return float(np.array([first, last], np.uint32).view(np.float32).astype(np.float64).mean())


class Quantiles:
    """See the module; ``exact`` is for tests."""

    def __init__(self, exact: int = EXACT) -> None:
        self.count = 0
        self.least, self.largest = math.inf, -math.inf
        self._exact = exact
        self._blocks: list[Floats] = []
        self._counts: NDArray[np.int64] | None = None

    def add(self, values: Floats) -> None:
        """Take the next values."""
        if values.size == 0:
            return
        self.count += values.size
        self.least, self.largest = min(self.least, values.min()), max(self.largest, values.max())
        self._blocks.append(values)
        if self.count > self._exact:
            self._bin_blocks()

    def _bin_blocks(self) -> None:
        if self._counts is None:
            self._counts = np.zeros(_BINS, np.int64)
        for block in self._blocks:
            np.add.at(self._counts, _bin_of(block), 1)
        self._blocks.clear()

    def at(self, fraction: float) -> float:
        """Return the value below which a fraction of them lies, interpolated between two."""
        if self.count == 0:
            return math.nan
        if self._counts is None:
            return float(np.quantile(np.concatenate(self._blocks), fraction))
        rank = fraction * (self.count - 1)
        index = int(np.searchsorted(np.cumsum(self._counts), rank, side="right"))
        return min(max(_middle_of(index), float(self.least)), float(self.largest))
