"""The parts that a quantised weight is stored as: which array an initializer of the graph gets.

    STORED["packed"](quantized)           # (N, n_blocks, block_size * bits / 8) uint8, for MatMulNBits

Letters in shapes: N outputs, K inputs, n_blocks = K / block_size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .quantized import Quantized, packed_bits

Array = NDArray[Any]


def _zeros(quantized: Quantized) -> Array:
    assert quantized.zero_points is not None
    return quantized.zero_points


def _packed_flat(integers: Array, bits: int) -> Array:
    """Pack a matrix in the order of its elements, as ONNX stores UINT4; 8-bit numbers are as they are."""
    flat = np.ascontiguousarray(integers).reshape(-1)
    packed: Array = packed_bits(np.pad(flat, (0, flat.size % 2 if bits == 4 else 0)), bits)
    return packed


STORED: Mapping[str, Callable[[Quantized], Array]] = {
    "packed": lambda quantized: quantized.packed,
    "rows": lambda quantized: quantized.packed.reshape(len(quantized.packed), -1),
    "scales": lambda quantized: quantized.scales,
    "zero_points": _zeros,
    "columns": lambda quantized: _packed_flat(quantized.integers().T, quantized.grid.bits),
    "column_scales": lambda quantized: np.ascontiguousarray(quantized.scales.T),
    "column_zero_points": lambda quantized: _packed_flat(quantized.zeros().T, quantized.grid.bits),
    "integers": lambda quantized: quantized.integers(),
    "zeros": lambda quantized: quantized.zeros(),
}
"""packed, rows, scales, zero_points: as MatMulNBits and GatherBlockQuantized read them, rows being the same
bytes as packed with one row an output. columns and what belongs to them: (K, N), as DequantizeLinear reads
them along axis 0. integers and zeros: one byte a number, (N, K) and (N, n_blocks)."""
