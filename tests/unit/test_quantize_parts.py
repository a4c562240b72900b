"""Parts of quantised weights: each is as large, and has the dims, that those who only count are told."""

from __future__ import annotations

import numpy as np
import pytest

from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.parts import COLUMN_PARTS, ROW_PARTS, STORED, parts_bytes, scale_parts
from gpt_onnx.export.quantize.rtn import round_to_nearest

SHAPES = [(7, 48), (3, 16), (5, 80), (4, 32)]  # odd numbers of outputs and of blocks, and neither


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stored", STORED)
def test_every_part_is_as_large_as_it_says(stored: str, shape: tuple[int, int], bits: int) -> None:
    grid = Grid(bits=bits, block_size=16)
    weight = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    part, quantized = STORED[stored], round_to_nearest(weight, grid)
    array = part.array(quantized)
    assert array.nbytes == part.nbytes(shape, grid)
    if part.dtype(grid).itemsize >= 1:
        assert array.size == np.prod(part.dims(shape, grid))


def test_sizes_are_those_of_bits_scales_and_zero_points() -> None:
    shape, grid = (10, 96), Grid(bits=4, block_size=32)
    assert parts_bytes(["packed", *scale_parts(grid)], shape, grid) == [480, 4 * 30, 20]  # 3 blocks: 2 bytes
    assert parts_bytes(COLUMN_PARTS, shape, grid) == [480, 4 * 30, 15]
    assert parts_bytes(ROW_PARTS, shape, grid) == [960, 30, 4 * 30]
    symmetric = Grid(bits=8, block_size=32, symmetric=True)
    assert parts_bytes(["packed", *scale_parts(symmetric)], shape, symmetric) == [960, 4 * 30]
