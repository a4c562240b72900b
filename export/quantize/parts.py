"""The parts that a quantised weight is stored as: what each is, for those who write and who only count.

    STORED["packed"].array(quantized)     # (N, n_blocks, block_size * bits / 8) uint8, for MatMulNBits
    STORED["packed"].nbytes((N, K), grid)

Letters in shapes: N outputs, K inputs, n_blocks = K / block_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from .grid import Grid
from .quantized import Quantized, packed_bits

Array = NDArray[Any]
Shape = tuple[int, int]
"""(N, K) of a weight."""


def _zeros(quantized: Quantized) -> Array:
    assert quantized.zero_points is not None
    return quantized.zero_points


def _packed_flat(integers: Array, bits: int) -> Array:
    """Pack a matrix in the order of its elements, as ONNX stores UINT4; 8-bit numbers are as they are."""
    flat = np.ascontiguousarray(integers).reshape(-1)
    packed: Array = packed_bits(np.pad(flat, (0, flat.size % 2 if bits == 4 else 0)), bits)
    return packed


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One part: how it is made of a weight, and how it lies in the file."""

    array: Callable[[Quantized], Array]
    dims: Callable[[Shape, Grid], tuple[int, ...]]
    """Of what the graph sees; two 4-bit numbers share a byte of the file."""
    dtype: Callable[[Grid], ir.DataType]

    def nbytes(self, shape: Shape, grid: Grid) -> int:
        """Return the bytes of the part of a weight."""
        return math.ceil(math.prod(self.dims(shape, grid)) * self.dtype(grid).itemsize)


def _float(grid: Grid) -> ir.DataType:
    return ir.DataType.FLOAT


def _byte(grid: Grid) -> ir.DataType:
    return ir.DataType.UINT8


def _number(grid: Grid) -> ir.DataType:
    return UNSIGNED[grid.bits]


def _blocks(shape: Shape, grid: Grid) -> int:
    return shape[1] // grid.block_size


def _of_blocks(shape: Shape, grid: Grid) -> tuple[int, ...]:
    return shape[0], _blocks(shape, grid)


def _of_column_blocks(shape: Shape, grid: Grid) -> tuple[int, ...]:
    return _blocks(shape, grid), shape[0]


UNSIGNED = {4: ir.DataType.UINT4, 8: ir.DataType.UINT8}
"""Bits to the type of DequantizeLinear's integers."""

STORED: Mapping[str, StoredPart] = {
    "packed": StoredPart(
        lambda quantized: quantized.packed,
        lambda shape, grid: (*_of_blocks(shape, grid), grid.block_size * grid.bits // 8),
        _byte,
    ),
    "rows": StoredPart(
        lambda quantized: quantized.packed.reshape(len(quantized.packed), -1),
        lambda shape, grid: (shape[0], shape[1] * grid.bits // 8),
        _byte,
    ),
    "scales": StoredPart(lambda quantized: quantized.scales, _of_blocks, _float),
    "zero_points": StoredPart(
        _zeros, lambda shape, grid: (shape[0], math.ceil(_blocks(shape, grid) * grid.bits / 8)), _byte
    ),
    "columns": StoredPart(
        lambda quantized: _packed_flat(quantized.integers().T, quantized.grid.bits),
        lambda shape, grid: (shape[1], shape[0]),
        _number,
    ),
    "column_scales": StoredPart(
        lambda quantized: np.ascontiguousarray(quantized.scales.T), _of_column_blocks, _float
    ),
    "column_zero_points": StoredPart(
        lambda quantized: _packed_flat(quantized.zeros().T, quantized.grid.bits), _of_column_blocks, _number
    ),
    "integers": StoredPart(lambda quantized: quantized.integers(), lambda shape, grid: shape, _byte),
    "zeros": StoredPart(lambda quantized: quantized.zeros(), _of_blocks, _byte),
}
"""packed, rows, scales, zero_points: as MatMulNBits and GatherBlockQuantized read them, rows being the same
bytes as packed with one row an output. columns and what belongs to them: (K, N), as DequantizeLinear reads
them along axis 0. integers and zeros: one byte a number, (N, K) and (N, n_blocks)."""

COLUMN_PARTS = ("columns", "column_scales", "column_zero_points")
"""What DequantizeLinear reads of a weight, in the order of its inputs."""
ROW_PARTS = ("integers", "zeros", "scales")
"""What lookups in standard operators read of a table."""


def scale_parts(grid: Grid) -> tuple[str, ...]:
    """Return what MatMulNBits and GatherBlockQuantized read beside the integers, in the order of inputs."""
    return ("scales",) if grid.symmetric else ("scales", "zero_points")


def parts_bytes(stored: Iterable[str], shape: Shape, grid: Grid) -> list[int]:
    """Return the bytes of parts of a weight."""
    return [STORED[name].nbytes(shape, grid) for name in stored]
