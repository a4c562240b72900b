from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.runtime.bench.statistics import Paired, Summary

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
