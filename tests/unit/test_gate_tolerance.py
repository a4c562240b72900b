"""The gate's arithmetic: units, ratios, and that nothing that is not a number passes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpt_onnx.export.gate.tolerance import (
    FLOOR,
    MAX_FACTOR,
    RMS_FACTOR,
    Ratio,
    RowErrors,
    Unit,
    ratio_of,
    ratio_of_blocks,
    worst,
)

NUMBERS = arrays(np.float64, (5, 4), elements=st.floats(-100, 100, width=32))
UNIT = Unit(peak=1e-6, rms=5e-7)


@given(NUMBERS, NUMBERS)
def test_a_unit_is_the_error_of_float32_on_the_chosen_rows(truth: np.ndarray, noise: np.ndarray) -> None:
    f32 = (truth + 1e-3 * noise).astype(np.float32)
    unit = RowErrors.measure(f32, truth).unit(slice(1, 4))
    error = f32[1:4].astype(np.float64) - truth[1:4]
    assert unit.peak == pytest.approx(max(np.abs(error).max(), FLOOR * np.abs(truth[1:4]).max()), rel=1e-12)
    rms = max(math.sqrt((error**2).mean()), FLOOR * math.sqrt((truth[1:4] ** 2).mean()))
    assert unit.rms == pytest.approx(rms, rel=1e-9, abs=1e-300)


@given(NUMBERS)
def test_rows_can_be_measured_apart_and_joined(truth: np.ndarray) -> None:
    f32 = truth.astype(np.float32) * np.float32(1.0001)
    joined = RowErrors.join([RowErrors.measure(f32[:2], truth[:2]), RowErrors.measure(f32[2:], truth[2:])])
    whole = RowErrors.measure(f32, truth)
    assert joined.unit() == whole.unit()
    assert joined.prefix(3).unit() == whole.unit(slice(3)) == whole.unit([0, 1, 2])


@given(NUMBERS, st.integers(1, 5))
def test_blocks_give_the_ratio_of_the_whole(truth: np.ndarray, size: int) -> None:
    found = truth + 1e-6 * np.cos(np.arange(20)).reshape(5, 4)
    blocks = [(found[i : i + size], truth[i : i + size]) for i in range(0, 5, size)]
    parts, whole = ratio_of_blocks(blocks, UNIT), ratio_of(found, truth, UNIT)
    assert parts.peak == whole.peak
    assert parts.rms == pytest.approx(whole.rms, rel=1e-12)


def test_the_ratio_is_the_error_in_units() -> None:
    truth = np.zeros((1, 2))
    ratio = ratio_of(np.array([[3e-6, 0.0]]), truth, UNIT)
    assert ratio.peak == pytest.approx(3.0)
    assert ratio.rms == pytest.approx(3e-6 / math.sqrt(2) / 5e-7)


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_the_bounds_are_four_units_and_three_of_the_root_mean_square(factor: float) -> None:
    assert UNIT.bounds == (4e-6, 1.5e-6)
    assert Ratio(peak=MAX_FACTOR * factor, rms=0.0).passed is (factor < 1)
    assert Ratio(peak=0.0, rms=RMS_FACTOR * factor).passed is (factor < 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_fail(bad: float) -> None:
    found = np.array([[0.0, bad]])
    assert not ratio_of(found, np.zeros((1, 2)), UNIT).passed
    assert not ratio_of(np.zeros((1, 2)), found, UNIT).passed


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reference_that_is_not_finite_lets_nothing_pass(bad: float) -> None:
    truth = np.array([[1.0, bad]])
    assert not ratio_of(
        np.ones((1, 2)), np.ones((1, 2)) + 1e-3, RowErrors.measure(truth, truth).unit()
    ).passed
    f32 = np.array([[1.0, bad]], np.float32)
    unit = RowErrors.measure(f32, np.ones((1, 2))).unit()
    assert not ratio_of(np.ones((1, 2)) + 1e-3, np.ones((1, 2)), unit).passed


@pytest.mark.parametrize("nan", [Ratio(peak=math.nan, rms=0.0), Ratio(peak=0.0, rms=math.nan)])
def test_a_ratio_that_is_nan_fails(nan: Ratio) -> None:
    assert not nan.passed


def test_another_shape_fails() -> None:
    assert not ratio_of(np.zeros((1, 3)), np.zeros((1, 2)), UNIT).passed


def test_no_error_passes_even_where_the_unit_is_zero() -> None:
    zeros = np.zeros((2, 2))
    assert ratio_of(zeros, zeros, RowErrors.measure(zeros, zeros).unit()) == Ratio(peak=0.0, rms=0.0)
    assert not ratio_of(zeros + 1e-30, zeros, RowErrors.measure(zeros, zeros).unit()).passed


def test_the_worst_of_several_is_the_largest_of_each() -> None:
    assert worst([Ratio(peak=1.0, rms=2.0), Ratio(peak=3.0, rms=0.5)]) == Ratio(peak=3.0, rms=2.0)
    assert worst([Ratio(peak=math.inf, rms=0.0), Ratio(peak=1.0, rms=1.0)]).peak == math.inf
