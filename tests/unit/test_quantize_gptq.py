"""GPTQ: outputs change less than by rounding to nearest, and inputs that teach nothing do no harm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.errors import CheckpointError, ConfigError
from gpt_onnx.export.quantize.gptq import gptq
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.hqq import half_quadratic
from gpt_onnx.export.quantize.rtn import round_to_nearest

GRID = Grid(bits=4, block_size=16)
GRIDS = [
    Grid(bits=bits, block_size=size, symmetric=symmetric)
    for bits in (4, 8)
    for size in (16, 64)
    for symmetric in (False, True)
]
INPUTS = 128


def layer(samples: int = 400, seed: int = 0) -> tuple[Any, Any]:
    """Return a weight (40, INPUTS) and inputs (INPUTS, samples) that hang together, as activations do."""
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(INPUTS, INPUTS)) * np.exp(random.normal(size=INPUTS))
    weight = random.normal(size=(40, INPUTS)).astype(np.float32)
    return weight, mixing @ random.normal(size=(INPUTS, samples))


def change(weight: Any, quantized: Any, x: Any) -> float:
    """Return the squared change of a layer's outputs, in float64."""
    return float((((quantized.dequantized() - weight.astype(np.float64)) @ x) ** 2).sum())


@pytest.mark.parametrize("grid", GRIDS)
def test_outputs_change_much_less_than_by_rounding(grid: Grid) -> None:
    weight, x = layer()
    ours = change(weight, gptq(weight, grid, x @ x.T), x)
    assert ours < 0.4 * change(weight, half_quadratic(weight, grid), x)
    assert ours < 0.4 * change(weight, round_to_nearest(weight, grid), x)


def test_it_is_as_good_on_inputs_that_it_has_not_seen() -> None:
    weight, x = layer(4000)
    seen, fresh = x[:, :2000], x[:, 2000:]
    ours = change(weight, gptq(weight, GRID, seen @ seen.T), fresh)
    assert ours < 0.4 * change(weight, round_to_nearest(weight, GRID), fresh)


def test_sweeps_never_make_it_worse() -> None:
    weight, x = layer()
    h = x @ x.T
    h += 0.01 * h.diagonal().mean() * np.eye(INPUTS)  # what is minimised has the damping in it
    factor = np.linalg.cholesky(h)
    errors = [change(weight, gptq(weight, GRID, x @ x.T, sweeps=sweeps), factor) for sweeps in range(5)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.95 * errors[0]


def test_two_inputs_worked_out_by_brute_force() -> None:
    """With two live inputs of a block, the best pair of integers is found by trying all 256."""
    weight, h = np.zeros((1, 16), np.float32), np.zeros((16, 16))
    weight[0, :2] = 0.83, -0.41
    h[:2, :2] = [[1.0, 0.95], [0.95, 1.0]]
    quantized = gptq(weight, GRID, h)
    scale, zero = float(quantized.scales[0, 0]), int(quantized.zeros()[0, 0])
    points = scale * (np.arange(16) - zero)
    pairs = np.stack(np.meshgrid(points, points), axis=-1).reshape(-1, 2) - weight[0, :2]
    damped = h[:2, :2] + 0.01 * np.eye(2)
    best = np.einsum("pi,ij,pj->p", pairs, damped, pairs).min()
    ours = quantized.dequantized()[0, :2] - weight[0, :2]
    assert ours @ damped @ ours <= best * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize("factor", [1e-30, 1.0, 1e30])
def test_neither_the_size_of_the_hessian_nor_that_of_the_weights_matters(factor: float) -> None:
    weight, x = layer()
    expected = gptq(weight, GRID, x @ x.T)
    other = gptq(np.ldexp(weight, 60), GRID, x @ x.T * factor)
    assert np.mean(other.integers() == expected.integers()) > 0.999


def test_rows_are_independent() -> None:
    weight, x = layer()
    spoilt = weight.copy()
    spoilt[3] = 1e20
    before, after = (gptq(w, GRID, x @ x.T).dequantized() for w in (weight, spoilt))
    others = np.arange(40) != 3
    np.testing.assert_allclose(after[others], before[others], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after[3], 1e20, rtol=0.05)


def test_dead_inputs_are_rounded_and_touch_nothing() -> None:
    weight, x = layer()
    x[[5, 20, 21]] = 0
    quantized = gptq(weight, GRID, x @ x.T)
    assert change(weight, quantized, x) < 0.4 * change(weight, round_to_nearest(weight, GRID), x)
    step = np.abs(quantized.scales[:, [0, 1, 1]])
    assert (np.abs(quantized.dequantized() - weight)[:, [5, 20, 21]] < 1.5 * step).all()


@pytest.mark.parametrize("samples", [0, 1, 3, 100])
def test_fewer_samples_than_inputs_are_enough(samples: int) -> None:
    weight, x = layer(samples)
    quantized = gptq(weight, GRID, x @ x.T)
    assert np.abs(quantized.dequantized() - weight).max() < 2
    assert change(weight, quantized, x) <= 0.4 * change(weight, round_to_nearest(weight, GRID), x)


def test_two_inputs_that_are_always_equal_are_no_trouble() -> None:
    weight, x = layer()
    x[1::2] = x[::2]
    assert np.isfinite(gptq(weight, GRID, 1e8 * x @ x.T).scales).all()


@pytest.mark.parametrize("grid", GRIDS)
def test_zeros_stay_zeros_and_a_block_of_next_to_nothing_is_finite(grid: Grid) -> None:
    weight, x = layer()
    weight[1] = 0
    weight[2, :64] = 1e-44
    weight[2, 64:] = 1e37
    out = gptq(weight, grid, x @ x.T).dequantized()
    assert not out[1].any()
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out[2, 64:], 1e37, rtol=0.2)


def test_without_a_hessian_it_is_the_search_alone() -> None:
    weight, _ = layer()
    ours, searched = gptq(weight, GRID), half_quadratic(weight, GRID)
    everything = np.eye(INPUTS)
    assert change(weight, ours, everything) <= change(weight, searched, everything) * (1 + 1e-5)


def test_a_hessian_of_other_inputs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"c_fc has the shape \[64, 64\]; its inputs make it \[128, 128\]"):
        gptq(layer()[0], GRID, np.eye(64), called="c_fc")


def test_activations_that_overflow_are_refused() -> None:
    with pytest.raises(CheckpointError, match="inputs of c_fc are not finite"):
        gptq(layer()[0], GRID, np.full((INPUTS, INPUTS), np.inf), called="c_fc")
