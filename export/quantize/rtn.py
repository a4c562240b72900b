"""Round to nearest: a block's lattice spans its smallest and its largest number, and 0.

    asymmetric   scale = (max - min) / (levels - 1)     zero = round(-min / scale)      min <= 0 <= max
    symmetric    scale = -peak / 2^(bits-1)             zero = 2^(bits-1)

where peak is the number of largest size with its sign. It becomes the integer 0, the end that a symmetric
lattice has one step farther out, so that all levels are used (as in llama.cpp's Q4_0 and ONNX Runtime's own
quantiser); scales are negative where it is positive. 0 is always exact.

    round_to_nearest(weight, Grid(bits=4, block_size=32)).dequantized()
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._blocks import Lattice, checked, fitted, rounded, storable
from .grid import Grid
from .quantized import Floats, Quantized


def _ends(blocks: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and the largest number of each block and 0; in float64 no difference overflows."""
    low = np.minimum(blocks.min(axis=-1), 0).astype(np.float64)
    return low, np.maximum(blocks.max(axis=-1), 0).astype(np.float64)


def span(blocks: NDArray[Any], grid: Grid, part: float = 1.0) -> Lattice:
    """Return the lattice that spans a part of the way from 0 to each end of blocks (..., block_size)."""
    low, high = _ends(blocks)
    low, high = part * low, part * high
    if grid.symmetric:
        peak = np.where(high > -low, high, low)
        scales = storable(-peak / grid.middle)
        return Lattice(scales, np.full(scales.shape, grid.middle, np.float32))
    scales = storable((high - low) / (grid.levels - 1))
    zeros = np.clip(np.rint(-low / scales), 0, grid.levels - 1)
    return Lattice(scales, zeros.astype(np.float32))


def round_to_nearest(
    weight: Floats, grid: Grid, hessian: NDArray[Any] | None = None, called: str = "a weight"
) -> Quantized:
    """Quantise a weight (N, K); it needs no Hessian.

    Raises:
        ConfigError: if the weight is no matrix, or its inputs do not fill blocks.
        CheckpointError: if it holds NaN or infinity.
    """
    weight = checked(weight, grid, called)
    return rounded(weight, grid, fitted(weight, grid, span))
