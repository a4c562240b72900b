from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from gpt_onnx.runtime.bench.statistics import Paired, Summary, median_interval

TIMES = st.floats(1e-3, 1e3)


@given(st.lists(TIMES, min_size=1, max_size=30))
def test_a_summary_has_the_median_and_the_least(values: list[float]) -> None:
    summary = Summary.of(values)
    assert summary.median == pytest.approx(statistics.median(values))
    assert (summary.least, summary.count) == (min(values), len(values))
    assert summary.median <= summary.p90 <= max(values)


def test_p90_of_eleven_values_is_the_tenth() -> None:
    assert Summary.of(range(1, 12)).p90 == 10.0


@given(st.lists(TIMES, min_size=1, max_size=9), st.floats(0.1, 10))
def test_noise_that_slows_both_leaves_the_ratio(noise: list[float], speed: float) -> None:
    paired = Paired.of([speed * slow for slow in noise], noise)
    assert paired.ratio == pytest.approx(speed)


def test_one_disturbed_round_does_not_decide() -> None:
    assert Paired.of([2.0, 2.0, 50.0], [1.0, 1.0, 1.0]).ratio == 2.0


def test_pooling_takes_the_median_over_all_rounds() -> None:
    pooled = Paired.of([1.0, 1.0], [1.0, 1.0]).pooled(Paired.of([3.0, 3.0, 3.0], [1.0, 1.0, 1.0]))
    assert pooled.rounds == (1.0, 1.0, 3.0, 3.0, 3.0)
    assert pooled.ratio == 3.0


@pytest.mark.parametrize("count", [1, 2, 5, 6, 9, 20, 51])
def test_the_interval_of_a_median_is_as_sure_as_the_binomial_says(count: int) -> None:
    low, high, confidence = median_interval([float(value) for value in range(1, count + 1)])
    assert low + high == count + 1  # as many values below it as above
    fewer = binom.cdf(low - 1, count, 0.5)  # fewer than k values on one side of the median
    assert confidence == pytest.approx(1 - 2 * fewer)
    narrower = 1 - 2 * binom.cdf(low, count, 0.5)
    assert narrower < 0.95
    assert confidence >= 0.95 or low == 1


def test_an_interval_reaches_around_the_ratio() -> None:
    paired = Paired.of([2.0, 4.0, 6.0, 3.0, 8.0, 5.0, 7.0], [1.0] * 7)
    assert (paired.low, paired.ratio, paired.high) == (2.0, 5.0, 8.0)
