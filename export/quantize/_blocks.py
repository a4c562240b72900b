"""A weight block by block: what is refused, what a lattice is, and how memory stays bounded.

A block is ``block_size`` consecutive inputs of one output. Its lattice is a scale and a zero point; a number
w becomes the integer

    q = clip(round(w / scale) + zero, 0, levels - 1)        and means        scale * (q - zero).

Letters in shapes: N outputs, K inputs, n_blocks = K / block_size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import CheckpointError, ConfigError

from .grid import Grid
from .quantized import Floats, Quantized

PIECE = 2**16
"""Numbers that are worked on at once: temporaries of this size stay in a core's cache."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""Of a scale: a subnormal one may be flushed to zero by the kernel."""
LARGEST = 2.0**126
"""Of a weight, a fourth of the largest float: what an integer means may lie a step beyond it."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """Scales and zero points of blocks."""

    scales: Floats
    """(..., n_blocks); not 0. Symmetric lattices may have negative ones."""
    zeros: Floats
    """(..., n_blocks), whole numbers."""

    def integers(self, blocks: NDArray[Any], grid: Grid) -> Floats:
        """Return q for blocks (..., n_blocks, block_size), as whole floats."""
        q = np.rint(blocks / self.scales[..., None])
        q += self.zeros[..., None]
        return np.clip(q, 0, grid.levels - 1, out=q)

    def meaning(self, integers: NDArray[Any]) -> Floats:
        """Return the numbers that integers mean."""
        values: Floats = (integers - self.zeros[..., None]) * self.scales[..., None]
        return values

    def better(self, other: Lattice, where: NDArray[np.bool_]) -> Lattice:
        """Take the other's blocks where it says so."""
        return Lattice(np.where(where, other.scales, self.scales), np.where(where, other.zeros, self.zeros))


Fit = Callable[[Floats, Grid], Lattice]
"""Chooses lattices for blocks (..., n_blocks, block_size)."""


def storable(scales: NDArray[Any]) -> Floats:
    """Return scales as the float32 that is stored, not 0 and not subnormal; a block of zeros has 1."""
    size = np.maximum(np.abs(scales), SMALLEST)
    return np.where(scales == 0, 1.0, np.copysign(size, scales)).astype(np.float32)


def unit_of(numbers: Floats) -> Floats:
    """Return the power of two above all sizes along the last axis, which is kept; not below 2^-120."""
    _, exponents = np.frexp(np.abs(numbers).max(axis=-1, keepdims=True))
    unit: Floats = np.ldexp(np.float32(1), np.maximum(exponents, -120)).astype(np.float32)
    return unit


def checked(weight: NDArray[Any], grid: Grid, called: str) -> Floats:
    """Return a weight (N, K) that can be quantised, as float32.

    Raises:
        ConfigError: if it is no matrix, or its inputs do not fill blocks.
        CheckpointError: if it holds NaN, infinity, or a number beyond LARGEST.
    """
    if weight.ndim != 2:
        raise ConfigError(
            f"{called} has the shape {list(weight.shape)}; a matrix (outputs, inputs) can be quantised, "
            "leave it in floating point."
        )
    if weight.shape[1] % grid.block_size:
        raise ConfigError(
            f"{called} has {weight.shape[1]} inputs, which is no multiple of block_size = {grid.block_size}; "
            "take a block size that divides it, or leave it in floating point."
        )
    step = max(1, PIECE // max(1, weight.shape[1]))
    for start in range(0, weight.shape[0], step):
        if not (np.abs(weight[start : start + step]) <= LARGEST).all():  # NaN is not
            raise CheckpointError(
                f"{called} has NaN, infinity or a number beyond {LARGEST:.0e} in rows {start} to "
                f"{min(start + step, len(weight)) - 1}; "
                "such weights compute nothing: go back to an earlier checkpoint."
            )
    return np.ascontiguousarray(weight, dtype=np.float32)


def as_blocks(weight: NDArray[Any], grid: Grid) -> NDArray[Any]:
    """View (N, K) as (N, n_blocks, block_size)."""
    return weight.reshape(weight.shape[0], -1, grid.block_size)


def fitted(weight: Floats, grid: Grid, fit: Fit) -> Lattice:
    """Choose every block's lattice, some rows at a time."""
    rows, inputs = weight.shape
    step = max(1, PIECE // max(1, inputs))
    blocks = as_blocks(weight, grid)
    scales = np.empty(blocks.shape[:2], np.float32)
    zeros = np.empty(blocks.shape[:2], np.float32)
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        lattice = fit(blocks[piece], grid)
        scales[piece], zeros[piece] = lattice.scales, lattice.zeros
    return Lattice(scales, zeros)


def rounded(weight: Floats, grid: Grid, lattice: Lattice) -> Quantized:
    """Round every number to the nearest that its block's lattice has, some rows at a time."""
    rows, inputs = weight.shape
    step = max(1, PIECE // max(1, inputs))
    integers = np.empty(weight.shape, np.uint8)
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        part = Lattice(lattice.scales[piece], lattice.zeros[piece])
        q = part.integers(as_blocks(weight[piece], grid), grid)
        integers[piece] = q.reshape(-1, inputs)
    return Quantized.of_integers(integers, lattice.scales, lattice.zeros, grid)
