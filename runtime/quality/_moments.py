"""Mean and standard error of several series, block by block, in the order of nobody's choosing.

Blocks are merged by the formula of Chan, Golub and LeVeque (1979): sums of squares about the mean, so that a
small spread around a large mean is not lost to cancellation. The standard error of a mean is that of
independent values, sqrt(sum (x - mean)^2 / (n (n - 1))), as llama.cpp's perplexity tool has it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Moments:
    """See the module.

    Args:
        width: The number of series.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean: Floats = np.zeros(width)
        self._squares: Floats = np.zeros(width)

    def add(self, *series: Floats | NDArray[np.bool_]) -> None:
        """Take the next values of each series, all of one number."""
        block = np.stack(series).astype(np.float64)
        count = block.shape[1]
        if count == 0:
            return
        mean = block.mean(axis=1)
        delta, total = mean - self.mean, self.count + count
        self._squares += ((block - mean[:, None]) ** 2).sum(axis=1) + delta**2 * (self.count * count / total)
        self.mean += delta * (count / total)
        self.count = total

    def error(self, index: int) -> float:
        """Return the standard error of one series' mean; of a single value it is not known (NaN)."""
        if self.count < 2:
            return math.nan
        return math.sqrt(self._squares[index] / self.count / (self.count - 1))
