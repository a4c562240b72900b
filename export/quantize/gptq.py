"""GPTQ: rounding that each next column makes up for, so that a layer's outputs change least on given text.

    minimise over the integers        trace((W - V) H (W - V)^T),        H = 2 X X^T

for a weight W (N, K), what its integers mean V, and the layer's inputs X (K, samples).

1. Lattices are fixed first, from W, block by block, with the error of input k weighted by H_kk
   (gpt_onnx.export.quantize._search). So columns may be taken in any order, and no permutation has to be
   stored ("static groups"); MatMulNBits could not use one.
2. H + damping is inverted, (H + d I)^-1 = U^T U with U upper triangular, columns in descending order of H_kk.
   Column j is rounded; what that changed goes into the columns that are still free:

       e = (w_j - v_j) / U_jj        w_k -= e U_jk        for k > j

   in groups of ``LAZY`` columns, the rest updated once a group (Frantar et al., "GPTQ", 2022).
3. ``SWEEPS`` times over all blocks: each column in turn takes the lattice point that is best given all the
   others, v_j <- round(v_j + ((W - V) H)_j / H_jj) (coordinate descent: Behdin et al., "QuantEase", 2023),
   and each block's scale the value that is best given all integers, scale += g d / d H d with d = q - zero
   and g = (W - V) H. Neither step can make the error larger.

Inputs that were always zero have H_kk = 0: they count as average ones, and their weights are rounded to
nearest. Without a Hessian all inputs count alike: H = I, which is step 1 alone.

    gptq(weight, Grid(bits=4, block_size=128), hessian).dequantized()
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpt_onnx.errors import CheckpointError, ConfigError

from ._blocks import Lattice, checked, fitted, storable, unit_of
from ._search import Search, searching
from .grid import Grid
from .quantized import Floats, Quantized

DAMPING = 0.01
"""Added to the diagonal, as a share of its mean (Frantar et al.); ten times it until H can be inverted."""
LAZY = 128
"""Columns whose updates of all later columns are made at once."""
SWEEPS = 2
"""Of coordinate descent; the third gains a hundredth."""
PIECE = 2**23
"""Numbers that are worked on at once, in half a dozen arrays of 32 MB: a table of tokens has many more."""


def _checked_hessian(hessian: Any, inputs: int, called: str) -> Tensor:
    """Return H in float64.

    Raises:
        ConfigError: if it is not (K, K).
        CheckpointError: if it is not finite.
    """
    h = torch.as_tensor(hessian).to(torch.float64, copy=True)
    if tuple(h.shape) != (inputs, inputs):
        raise ConfigError(
            f"the Hessian for {called} has the shape {list(h.shape)}; its inputs make it "
            f"{[inputs, inputs]}: collect it from this layer."
        )
    if not torch.isfinite(h).all():
        raise CheckpointError(
            f"the inputs of {called} are not finite on the calibration text; the model overflows: "
            "check it in float32, or take a quantizer without calibration."
        )
    return h


def _damped(h: Tensor, damping: float) -> Tensor:
    """Return H with dead inputs as average ones, and a share of the mean on the diagonal."""
    h = h.clone()
    diagonal = h.diagonal()
    dead = diagonal <= 0
    mean = diagonal[~dead].mean() if bool((~dead).any()) else diagonal.new_ones(())
    diagonal[dead] = mean
    diagonal += damping * mean
    return h


def _upper(h: Tensor) -> Tensor | None:
    """Return U with U^T U = h^-1; None where rounding makes h singular."""
    lower, failed = torch.linalg.cholesky_ex(h)
    if int(failed):
        return None
    inverse = torch.cholesky_inverse(lower)
    del lower  # four float64 matrices of (K, K) are enough
    upper, failed = torch.linalg.cholesky_ex(inverse, upper=True)
    return None if int(failed) else upper


@dataclass(frozen=True, slots=True)
class _Metric:
    """What the inputs say about errors, in float32; none depends on the Hessian's size."""

    h: Tensor
    """(K, K), damped; its diagonal has the mean 1."""
    order: Tensor
    """Inputs, the strongest first."""
    upper: Tensor
    """U, in that order, up to a factor."""

    @classmethod
    def of(cls, hessian: Tensor, damping: float) -> _Metric:
        """Damp as much as it takes."""
        for share in (damping * 10.0**power for power in range(8)):
            damped = _damped(hessian, share)
            damped /= damped.diagonal().mean()
            order = torch.argsort(damped.diagonal(), descending=True, stable=True)
            if (upper := _upper(damped[order][:, order])) is not None:
                return cls(damped.float(), order, upper.float())
        raise AssertionError("a matrix X X^T was not positive definite with its own trace added")


class _Columns:
    """Rows of a weight and the lattice of each of their numbers; d is q - zero, a whole number.

    Tensors are float32; ``scales`` (n, n_blocks) change in ``swept``, everything else does not.
    """

    def __init__(self, weight: Floats, lattice: Lattice, grid: Grid) -> None:
        self.weight = torch.from_numpy(weight)
        scales = torch.from_numpy(lattice.scales)
        # a block of next to nothing in a row of large numbers; its scale divides
        self.scales = torch.copysign(scales.abs().clamp_min(2.0**-60), scales)
        zeros = torch.from_numpy(lattice.zeros)
        self.low, self.high = -zeros, grid.levels - 1 - zeros
        self.size = grid.block_size

    def nearest(self, values: Tensor, block: int) -> Tensor:
        """Return d of the lattice points nearest to values (n,) of one column."""
        d = torch.round(values / self.scales[:, block])
        return torch.clamp(d, self.low[:, block], self.high[:, block])

    def compensated(self, order: Tensor, upper: Tensor) -> Tensor:
        """Step 2: return d, (n, K)."""
        w = self.weight[:, order].clone()
        d = torch.empty_like(w)
        blocks = (order // self.size).tolist()
        for start in range(0, len(order), LAZY):
            stop = min(start + LAZY, len(order))
            errors = torch.empty_like(w[:, start:stop])
            for j in range(start, stop):
                d[:, j] = self.nearest(w[:, j], blocks[j])
                error = (w[:, j] - d[:, j] * self.scales[:, blocks[j]]) / upper[j, j]
                w[:, j + 1 : stop].addr_(error, upper[j, j + 1 : stop], alpha=-1)
                errors[:, j - start] = error
            w[:, stop:].addmm_(errors, upper[start:stop, stop:], alpha=-1)
        out = torch.empty_like(d)
        out[:, order] = d
        return out

    def swept(self, d: Tensor, h: Tensor) -> None:
        """Step 3, once: change d and the scales in place."""
        wide = self.scales.repeat_interleave(self.size, dim=1)
        rest = self.weight - d * wide
        for block in range(self.scales.shape[1]):
            columns = slice(block * self.size, (block + 1) * self.size)
            own = h[columns, columns]
            pull = rest[:, columns] @ own  # of this block; that of the others does not change in it
            pull += rest[:, : columns.start] @ h[: columns.start, columns]
            pull += rest[:, columns.stop :] @ h[columns.stop :, columns]
            d_block = d[:, columns]
            for k in range(self.size):
                before = d_block[:, k].clone()
                aim = before * self.scales[:, block] + pull[:, k] / own[k, k]
                d_block[:, k] = self.nearest(aim, block)
                pull.addr_((d_block[:, k] - before) * self.scales[:, block], own[k], alpha=-1)
            self._rescale(block, d_block, pull, own)
            rest[:, columns] = self.weight[:, columns] - d_block * self.scales[:, block, None]

    def _rescale(self, block: int, d: Tensor, pull: Tensor, own: Tensor) -> None:
        """Give one block the scales of least error."""
        along, bend = (pull * d).sum(dim=1), ((d @ own) * d).sum(dim=1)
        scales = self.scales[:, block] + along / torch.where(bend > 0, bend, torch.inf)
        usable = scales.abs() > 0.1 * self.scales[:, block].abs()
        self.scales[:, block] = torch.where(usable, scales, self.scales[:, block])


def _quantised_rows(
    weight: Floats, grid: Grid, metric: _Metric, sweeps: int
) -> tuple[NDArray[np.uint8], Lattice]:
    unit = unit_of(weight)
    weight = weight / unit  # rows do not depend on each other; no product overflows
    search = Search(strengths=metric.h.diagonal().numpy())
    lattice = fitted(weight, grid, searching(search))
    columns = _Columns(weight, lattice, grid)
    d = columns.compensated(metric.order, metric.upper)
    for _ in range(sweeps):
        columns.swept(d, metric.h)
    integers = d.numpy() + np.repeat(lattice.zeros, grid.block_size, axis=1)
    scales = storable(columns.scales.numpy() * unit.astype(np.float64))
    return integers.astype(np.uint8), Lattice(scales, lattice.zeros)


def gptq(
    weight: Floats,
    grid: Grid,
    hessian: NDArray[Any] | None = None,
    called: str = "a weight",
    *,
    damping: float = DAMPING,
    sweeps: int = SWEEPS,
) -> Quantized:
    """Quantise a weight (N, K).

    Args:
        weight: In float32.
        grid: How finely.
        hessian: X X^T of the layer's inputs (K, samples), or any multiple of it; None: all inputs alike.
        called: The weight's name in errors.
        damping: Share of the mean of H's diagonal that is added to it.
        sweeps: How often step 3 is done.

    Raises:
        ConfigError: if the weight is no matrix, its inputs do not fill blocks, or the Hessian is not theirs.
        CheckpointError: if weight or Hessian hold NaN or infinity.
    """
    weight = checked(weight, grid, called)
    inputs = weight.shape[1]
    known = np.eye(inputs) if hessian is None else hessian
    with torch.no_grad():
        metric = _Metric.of(_checked_hessian(known, inputs, called), damping)
        step = max(1, PIECE // max(1, inputs))
        pieces = [
            _quantised_rows(weight[start : start + step], grid, metric, sweeps)
            for start in range(0, len(weight), step)
        ]
    integers = np.concatenate([piece for piece, _ in pieces])
    scales = np.concatenate([lattice.scales for _, lattice in pieces])
    zeros = np.concatenate([lattice.zeros for _, lattice in pieces])
    return Quantized.of_integers(integers, scales, zeros, grid)
