"""A weight as integers on a grid, in the bytes that ONNX Runtime's kernels read.

    q = Quantized.of_integers(integers, scales, zero_points, grid)
    q.packed.shape          # (N, n_blocks, block_size * bits / 8)
    q.dequantized()         # (N, K) float32: scale * (q - zero_point)

Letters in shapes: N outputs, K inputs, n_blocks = K / block_size. Two 4-bit numbers share a byte, the earlier
in its low half (com.microsoft::MatMulNBits and GatherBlockQuantized, operator documents of ONNX Runtime).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .grid import Grid

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def packed_bits(integers: Bytes, bits: int) -> Bytes:
    """Pack the last axis, an even number of 4-bit numbers; 8-bit numbers are as they are."""
    if bits == 8:
        return np.ascontiguousarray(integers)
    return np.ascontiguousarray(integers[..., 0::2] | (integers[..., 1::2] << 4))


def unpacked_bits(packed: Bytes, bits: int) -> Bytes:
    """Undo ``packed_bits``."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """See the module."""

    packed: Bytes
    """(N, n_blocks, block_size * bits / 8)."""
    scales: Floats
    """(N, n_blocks)."""
    zero_points: Bytes | None
    """(N, ceil(n_blocks * bits / 8)); None where the grid is symmetric."""
    grid: Grid

    @classmethod
    def of_integers(
        cls, integers: NDArray[Any], scales: Floats, zero_points: NDArray[Any], grid: Grid
    ) -> Quantized:
        """Pack integers (N, K) with scales (N, n_blocks) and zero points (N, n_blocks)."""
        blocks = integers.astype(np.uint8).reshape(*scales.shape, grid.block_size)
        odd = scales.shape[1] % 2 if grid.bits == 4 else 0
        zeros = np.pad(zero_points.astype(np.uint8), ((0, 0), (0, odd)))
        return cls(
            packed=packed_bits(blocks, grid.bits),
            scales=np.ascontiguousarray(scales, np.float32),
            zero_points=None if grid.symmetric else packed_bits(zeros, grid.bits),
            grid=grid,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K) of the weight."""
        rows, blocks = self.scales.shape
        return rows, blocks * self.grid.block_size

    def integers(self) -> Bytes:
        """Return q, (N, K)."""
        return unpacked_bits(self.packed, self.grid.bits).reshape(self.shape)

    def zeros(self) -> Bytes:
        """Return the zero point of each block, (N, n_blocks)."""
        if self.zero_points is None:
            return np.full(self.scales.shape, self.grid.middle, np.uint8)
        return unpacked_bits(self.zero_points, self.grid.bits)[:, : self.scales.shape[1]]

    def dequantized(self) -> Floats:
        """Return the weight that the integers mean, (N, K)."""
        blocks = self.integers().reshape(*self.scales.shape, self.grid.block_size).astype(np.float32)
        values = (blocks - self.zeros()[..., None]) * self.scales[..., None]
        return values.reshape(self.shape)
