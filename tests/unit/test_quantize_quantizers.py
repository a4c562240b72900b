"""The table of quantisers: each gives bytes that mean what it says, for every grid, the same every time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.bundle._quantization_info import BLOCK_SIZES
from gpt_onnx.errors import CheckpointError, ConfigError
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.quantizers import QUANTIZERS, find_quantizer, quantize

GRIDS = [
    Grid(bits=bits, block_size=size, symmetric=symmetric)
    for bits in (4, 8)
    for size in BLOCK_SIZES
    for symmetric in (False, True)
]


def layer() -> tuple[Any, Any]:
    """Return a weight (6, 768), of an odd number of blocks of 256, and the Hessian of its inputs."""
    random = np.random.default_rng(0)
    x = random.normal(size=(768, 100)) * np.exp(random.normal(size=(768, 1)))
    return random.normal(size=(6, 768)).astype(np.float32), (x @ x.T).astype(np.float32)


def test_the_names_are_those_of_the_command_line() -> None:
    assert list(QUANTIZERS) == ["rtn", "hqq", "gptq"]
    assert [quantizer.calibrated for quantizer in QUANTIZERS.values()] == [False, False, True]
    assert all(name == quantizer.name for name, quantizer in QUANTIZERS.items())


@pytest.mark.parametrize("name", QUANTIZERS)
@pytest.mark.parametrize("grid", GRIDS)
def test_bytes_have_their_shapes_and_the_weight_is_near(name: str, grid: Grid) -> None:
    weight, hessian = layer()
    quantized, blocks = quantize(name, weight, grid, hessian), 768 // grid.block_size
    assert quantized.packed.shape == (6, blocks, grid.block_size * grid.bits // 8)
    assert quantized.scales.shape == (6, blocks)
    assert (quantized.zero_points is None) == grid.symmetric
    if quantized.zero_points is not None:
        assert quantized.zero_points.shape == (6, -(-blocks * grid.bits // 8))
    difference = quantized.dequantized() - weight
    assert np.square(difference).mean() < (0.06 if grid.bits == 4 else 3e-4)


@pytest.mark.parametrize("name", QUANTIZERS)
def test_the_same_weight_gives_the_same_bytes_and_is_not_changed(name: str) -> None:
    weight, hessian = layer()
    kept, kept_hessian = weight.copy(), hessian.copy()
    first, second = (quantize(name, weight, GRIDS[4], hessian) for _ in range(2))
    assert np.array_equal(first.packed, second.packed)
    assert np.array_equal(first.scales, second.scales)
    assert np.array_equal(weight, kept)
    assert np.array_equal(hessian, kept_hessian)


@pytest.mark.parametrize("name", QUANTIZERS)
def test_errors_name_the_weight(name: str) -> None:
    with pytest.raises(ConfigError, match="lm_head has 40 inputs"):
        quantize(name, np.zeros((2, 40), np.float32), GRIDS[0], called="lm_head")
    with pytest.raises(CheckpointError, match="lm_head has NaN"):
        quantize(name, np.full((2, 32), np.nan, np.float32), GRIDS[0], called="lm_head")


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="'awq'; it must be one of rtn, hqq, gptq"):
        find_quantizer("awq")
