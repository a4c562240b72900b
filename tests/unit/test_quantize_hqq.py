"""The search for each block's lattice: never worse than round to nearest, in its own norm, whatever comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpt_onnx.errors import CheckpointError
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.hqq import half_quadratic
from gpt_onnx.export.quantize.rtn import round_to_nearest

GRIDS = [
    Grid(bits=bits, block_size=size, symmetric=symmetric)
    for bits in (4, 8)
    for size in (16, 128)
    for symmetric in (False, True)
]


def gaussian(rows: int = 32, inputs: int = 256) -> Any:
    """Return weights as a trained layer has them, more or less."""
    return np.random.default_rng(0).normal(size=(rows, inputs)).astype(np.float32)


def error(quantized: Any, weight: Any, power: float = 2.0) -> Any:
    """Return sum c |w - v|^p of each block, c = |w| + rms, from what the bytes mean, in float64."""
    blocks = weight.astype(np.float64).reshape(len(weight), -1, quantized.grid.block_size)
    c = np.abs(blocks) + np.sqrt(np.square(blocks).mean(axis=-1, keepdims=True))
    difference = quantized.dequantized().astype(np.float64).reshape(blocks.shape) - blocks
    return (c * np.abs(difference) ** power).sum(axis=-1)


@settings(max_examples=60)
@given(
    block=hnp.arrays(np.float32, 16, elements=st.floats(-1000, 1000, width=32)),
    grid=st.sampled_from([grid for grid in GRIDS if grid.block_size == 16]),
    power=st.sampled_from([0.7, 1.0, 2.0]),
)
def test_no_block_is_worse_than_rounded_to_nearest(block: Any, grid: Grid, power: float) -> None:
    ours = error(half_quadratic(block[None], grid, power=power), block[None], power)[0, 0]
    nearest = error(round_to_nearest(block[None], grid), block[None], power)[0, 0]
    slack = 1e-5 * (np.abs(block.astype(np.float64)) ** (power + 1)).sum() + 1e-30  # sums are in float32
    assert ours <= nearest + slack


@pytest.mark.parametrize("grid", GRIDS)
def test_trained_weights_gain(grid: Grid) -> None:
    weight = gaussian()
    ours, nearest = (error(f(weight, grid), weight).sum() for f in (half_quadratic, round_to_nearest))
    assert ours < (0.97 if grid.bits == 4 else 1.0) * nearest


def test_the_best_lattice_of_one_block_is_nearly_found() -> None:
    """An exhaustive search over every zero point and 2,000 scales in float64 is hardly better."""
    block = gaussian(1, 32)
    span, c = float(np.ptp(block)), np.abs(block) + np.sqrt(np.square(block).mean())
    best = np.inf
    for scale in np.linspace(0.4, 1.1, 2000) * span / 15:
        for zero in range(16):
            q = np.clip(np.rint(block / scale) + zero, 0, 15)
            best = min(best, float((c * (scale * (q - zero) - block) ** 2).sum()))
    ours = error(half_quadratic(block, Grid(bits=4, block_size=32)), block).sum()
    assert best <= ours * (1 + 1e-6)
    assert ours <= 1.1 * best


@pytest.mark.parametrize("grid", GRIDS)
def test_zeros_constants_and_outliers_are_right(grid: Grid) -> None:
    weight = gaussian(4)
    weight[0] = 0
    weight[1] = -0.25
    weight[2, 3] = 1e9
    out = half_quadratic(weight, grid).dequantized()
    assert not out[0].any()
    np.testing.assert_allclose(out[1], -0.25, rtol=1e-5)
    assert out[2, 3] == pytest.approx(1e9, rel=1e-6)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("power", [-60, 60, 110])
def test_the_size_of_the_weights_does_not_matter(grid: Grid, power: int) -> None:
    weight = gaussian(2)
    scaled = half_quadratic(np.ldexp(weight, power), grid)
    assert np.array_equal(scaled.integers(), half_quadratic(weight, grid).integers())


def test_subnormal_weights_become_almost_nothing() -> None:
    weight = np.full((1, 16), 1e-42, np.float32)
    assert np.abs(half_quadratic(weight, GRIDS[0]).dequantized()).max() <= 1.2e-38


def test_infinity_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="wte has NaN, infinity"):
        half_quadratic(np.full((1, 16), np.inf, np.float32), GRIDS[0], called="wte")
