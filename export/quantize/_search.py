"""The lattice of each block that makes the weighted error of its numbers smallest.

    error = sum_i c_i |w_i - scale (q_i - zero)|^p

over scale and zero point, with q the nearest integers. The search is in two steps, neither of which ever
takes a worse lattice than the one before:

1. Shrink. The ends of the lattice move towards 0 together (``PARTS`` of rtn's span): numbers far out are
   clipped, and the many in the middle get a finer step.
2. Refine. With q fixed and d = q - zero, the error for p = 2 is least at

       scale = sum c w d / sum c d^2        zero = round(sum c (q - w / scale) / sum c),

   then q is rounded anew, and so on (half-quadratic alternation: Badri & Shaji, "Half-Quadratic
   Quantization", 2023, which leaves the scale alone and lets zero be any number; the kernels want it whole).
   For p < 2 the same formulas hold for w - e, where e, the part of the error that the norm forgives, is

       e = sign(r) max(0, |r| - |r|^(p-1) / beta)        r = w - scale d in steps of the lattice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._blocks import Fit, Lattice, storable, unit_of
from .grid import Grid
from .quantized import Floats
from .rtn import span

PARTS = tuple(float(part) for part in np.linspace(1.0, 0.6, 17))
"""Of rtn's span. Gaussian blocks of 32 to 128 numbers have their best 4-bit lattice at 0.75 to 0.95."""
ROUNDS = 3
"""Of refinement; a fourth gained nothing measurable."""
BETA = 10.0
"""Of the half-quadratic penalty at first (Badri & Shaji)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is minimised."""

    power: float = 2.0
    """p."""
    strengths: Floats | None = None
    """c by input, (K,), where inputs are known. None: c_i = |w_i| + rms(w) of the block, for large weights
    tend to meet large inputs, and clipping them is worse than their squares say."""

    def of_blocks(self, blocks: Floats, grid: Grid) -> Floats:
        """Return c as it multiplies blocks (rows, n_blocks, block_size)."""
        if self.strengths is not None:
            return self.strengths.reshape(1, -1, grid.block_size)
        c: Floats = np.abs(blocks) + np.sqrt(np.square(blocks).mean(axis=-1, keepdims=True))
        return c

    def errors(self, blocks: Floats, lattice: Lattice, grid: Grid) -> Floats:
        """Return the error of each block, (rows, n_blocks)."""
        r = np.abs(lattice.meaning(lattice.integers(blocks, grid)) - blocks)
        r = r * r if self.power == 2 else r**self.power
        total: Floats = (self.of_blocks(blocks, grid) * r).sum(axis=-1)
        return total


def _forgiven(r: Floats, power: float, beta: float) -> Floats:
    """Return e of the module's docstring for r in steps of the lattice."""
    size = np.maximum(np.abs(r), 1e-6)
    e: Floats = np.sign(r) * np.maximum(0, size - size ** (power - 1) / beta)
    return e


def _refined(search: Search, blocks: Floats, lattice: Lattice, grid: Grid, beta: float) -> Lattice:
    """Return the scales and zero points that fit the integers of a lattice best."""
    c = search.of_blocks(blocks, grid)
    q = lattice.integers(blocks, grid)
    target: NDArray[Any] = blocks
    if search.power < 2:
        step = lattice.scales[..., None]
        target = blocks - step * _forgiven((blocks - lattice.meaning(q)) / step, search.power, beta)
    d = q - lattice.zeros[..., None]
    below = (c * d * d).sum(axis=-1)
    scales = np.where(below > 0, (c * target * d).sum(axis=-1) / np.where(below > 0, below, 1), 0)
    scales = storable(np.where(scales == 0, lattice.scales, scales))
    if grid.symmetric:
        return Lattice(scales, lattice.zeros)
    weight = np.broadcast_to(c, q.shape)
    total = weight.sum(axis=-1)
    zeros = (weight * (q - target / scales[..., None])).sum(axis=-1) / np.where(total > 0, total, 1)
    return Lattice(scales, np.clip(np.rint(zeros), 0, grid.levels - 1).astype(np.float32))


def searching(search: Search) -> Fit:
    """Return what chooses the lattices of least error; it is never worse than ``span``."""

    def fit(blocks: Floats, grid: Grid) -> Lattice:
        unit = unit_of(blocks)
        blocks = blocks / unit  # squares of numbers of any size stay within float32
        best = span(blocks, grid)
        least = search.errors(blocks, best, grid)

        def consider(candidate: Lattice) -> None:
            nonlocal best, least
            error = search.errors(blocks, candidate, grid)
            best = best.better(candidate, error < least)
            least = np.minimum(least, error)

        for part in PARTS[1:]:
            consider(span(blocks, grid, part))
        for number in range(ROUNDS):
            consider(_refined(search, blocks, best, grid, BETA * 1.5**number))
        return Lattice(storable(best.scales * unit[..., 0].astype(np.float64)), best.zeros)

    return fit
