"""Round to nearest: bounds that hold for any weight, and blocks that are unlike the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpt_onnx.errors import CheckpointError, ConfigError
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.rtn import round_to_nearest

GRIDS = [
    Grid(bits=bits, block_size=size, symmetric=symmetric)
    for bits in (4, 8)
    for size in (16, 128)
    for symmetric in (False, True)
]
ASYMMETRIC, SYMMETRIC = Grid(bits=4, block_size=16), Grid(bits=4, block_size=16, symmetric=True)
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


def row(*numbers: float) -> Any:
    """Return a weight of one block of 16 that repeats these."""
    return np.tile(np.asarray(numbers, np.float32), 16 // len(numbers))[None]


def meant(block: Any, grid: Grid) -> Any:
    """Return what one block of numbers becomes."""
    filled = np.resize(np.asarray(block, np.float32), grid.block_size)
    return round_to_nearest(filled[None], grid).dequantized()[0]


@given(block=hnp.arrays(np.float32, 16, elements=FLOATS), bits=st.sampled_from([4, 8]))
def test_no_number_moves_by_more_than_half_a_step(block: Any, bits: int) -> None:
    exact = block.astype(np.float64)
    step = (max(exact.max(), 0) - min(exact.min(), 0)) / (2**bits - 1)
    error = np.abs(meant(block, Grid(bits=bits, block_size=16)) - exact)
    assert error.max() <= 0.5 * step * (1 + 1e-4) + 2e-38


@given(block=hnp.arrays(np.float32, 16, elements=FLOATS), bits=st.sampled_from([4, 8]))
def test_a_symmetric_lattice_reaches_its_peak_and_is_one_step_short_on_the_other_side(
    block: Any, bits: int
) -> None:
    exact, grid = block.astype(np.float64), Grid(bits=bits, block_size=16, symmetric=True)
    step = np.abs(exact).max() / 2 ** (bits - 1)
    error = np.abs(meant(block, grid) - exact)
    peaks = np.abs(exact) == np.abs(exact).max()
    assert error.max() <= step * (1 + 1e-4) + 2e-38
    assert error[peaks].min() <= 1e-4 * step + 2e-37


@pytest.mark.parametrize("grid", GRIDS)
def test_zeros_stay_zeros(grid: Grid) -> None:
    weight = np.zeros((3, 256), np.float32)
    quantized = round_to_nearest(weight, grid)
    assert np.array_equal(quantized.dequantized(), weight)
    assert np.isfinite(quantized.scales).all()
    assert quantized.scales.all()


@pytest.mark.parametrize("value", [5.0, -5.0, 1e-20, -3e30])
@pytest.mark.parametrize("grid", GRIDS)
def test_a_constant_block_is_exact_to_rounding(grid: Grid, value: float) -> None:
    np.testing.assert_allclose(meant([value], grid), value, rtol=1e-6)


@pytest.mark.parametrize("grid", GRIDS)
def test_zero_is_exact_beside_anything(grid: Grid) -> None:
    assert not meant([0.0, 3.7, 1.1, 0.0], grid)[[0, 3]].any()


def test_an_outlier_costs_its_own_block_alone() -> None:
    weight = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    spoilt = weight.copy()
    spoilt[0, 5] = 1e6
    before, after = (round_to_nearest(w, ASYMMETRIC).dequantized() for w in (weight, spoilt))
    assert np.array_equal(before[:, 16:], after[:, 16:])
    assert np.array_equal(before[1], after[1])
    assert after[0, 5] == pytest.approx(1e6, abs=5)  # the block's smallest number is -2.3


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("size", [1e-45, 1e-40, 1e-38, 8e37])
def test_the_smallest_and_the_largest_numbers_stay_finite_and_near(grid: Grid, size: float) -> None:
    block = np.asarray([size, -size, size, 0, size / 2], np.float32)
    out = meant(block, grid)
    error = np.abs(out.astype(np.float64) - np.resize(block, grid.block_size))
    assert error.max() <= max(size / grid.middle * 1.01, 1.2e-38)


def test_a_lattice_worked_out_by_hand() -> None:
    """From -1 to 2 in 15 steps of 0.2: zero is 5, and 0.31 is nearest to 2 steps."""
    quantized = round_to_nearest(row(-1, 2, 0.31, 0), ASYMMETRIC)
    assert quantized.integers()[0, :4].tolist() == [0, 15, 7, 5]
    assert quantized.zeros().tolist() == [[5]]
    assert quantized.scales[0, 0] == np.float32(0.2)


def test_a_symmetric_lattice_worked_out_by_hand() -> None:
    """The peak 2 is the integer 0, eight steps of -0.25 from the middle."""
    quantized = round_to_nearest(row(-1, 2, 0.3, 0), SYMMETRIC)
    assert quantized.integers()[0, :4].tolist() == [12, 0, 7, 8]
    assert quantized.scales[0, 0] == np.float32(-0.25)
    assert quantized.zero_points is None


def test_rows_do_not_depend_on_how_many_there_are() -> None:
    """Memory is bounded by pieces of rows; 70 rows of 4096 are five pieces."""
    weight = np.random.default_rng(1).normal(size=(70, 4096)).astype(np.float32)
    whole = round_to_nearest(weight, ASYMMETRIC).dequantized()
    parts = [round_to_nearest(weight[row : row + 1], ASYMMETRIC).dequantized() for row in range(70)]
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_a_number_that_is_none_is_refused_by_name(value: float) -> None:
    weight = np.zeros((4, 32), np.float32)
    weight[2, 7] = value
    with pytest.raises(CheckpointError, match=r"h\.0\.attn has NaN, infinity .* in rows 0 to 3"):
        round_to_nearest(weight, ASYMMETRIC, called="h.0.attn")


def test_what_does_not_fill_blocks_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"c_fc has 40 inputs, .* block_size = 16"):
        round_to_nearest(np.zeros((4, 40), np.float32), ASYMMETRIC, called="c_fc")
    with pytest.raises(ConfigError, match=r"ln_1 has the shape \[32\]"):
        round_to_nearest(np.zeros(32, np.float32), ASYMMETRIC, called="ln_1")
