"""Perplexity and divergence against formulas written out again in float64, and what holds for any logits."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from gpt_onnx.errors import InputError
from gpt_onnx.runtime.quality import Comparison, ComparisonMeter, PerplexityMeter
from gpt_onnx.runtime.quality._moments import Moments
from gpt_onnx.runtime.quality._quantiles import Quantiles

Case = tuple[Any, Any, Any]
SEEDS = st.integers(0, 2**32 - 1)


def case(seed: int, rows: int = 60, vocab: int = 23, noise: float = 0.3) -> Case:
    """Logits of a base model, those of one that is near, and the tokens that follow."""
    generator = np.random.default_rng(seed)
    base = 4 * generator.standard_normal((rows, vocab)).astype(np.float32)
    test = base + noise * generator.standard_normal(base.shape).astype(np.float32)
    return base, test, generator.integers(0, vocab, rows)


def compared(base: Any, test: Any, ids: Any, step: int = 7) -> Comparison:
    meter = ComparisonMeter()
    for low in range(0, len(ids), step):
        meter.add(base[low : low + step], test[low : low + step], ids[low : low + step])
    return meter.result(text_bytes=3 * len(ids))


def nll_of(logits: Any, ids: Any) -> Any:
    return -special.log_softmax(logits.astype(np.float64), axis=1)[np.arange(len(ids)), ids]


def divergences(base: Any, test: Any) -> Any:
    p, q = (special.softmax(logits.astype(np.float64), axis=1) for logits in (base, test))
    return stats.entropy(p, q, axis=1)


def test_perplexities_are_those_of_the_definition() -> None:
    base, test, ids = case(0)
    found = compared(base, test, ids)
    for one, logits in ((found.base, base), (found.test, test)):
        nll = nll_of(logits, ids)
        assert one.nll.value == pytest.approx(nll.mean(), rel=1e-12)
        assert one.nll.error == pytest.approx(stats.sem(nll), rel=1e-12)
        assert one.perplexity.value == pytest.approx(math.exp(nll.mean()), rel=1e-12)
        assert one.perplexity.error == pytest.approx(math.exp(nll.mean()) * stats.sem(nll), rel=1e-12)
        assert one.bits_per_byte == pytest.approx(nll.sum() / math.log(2) / (3 * len(ids)), rel=1e-12)


def test_the_error_of_the_ratio_is_that_of_llama_cpp_with_its_covariance() -> None:
    base, test, ids = case(1)
    found, p, q = compared(base, test, ids), nll_of(base, ids), nll_of(test, ids)
    count = len(ids)
    covariance = (np.mean(p * q) - p.mean() * q.mean()) / (count - 1)
    variances = [(np.mean(x * x) - x.mean() ** 2) / (count - 1) for x in (p, q)]
    error = math.sqrt(sum(variances) - 2 * covariance)
    assert found.ln_ratio.value == pytest.approx(q.mean() - p.mean(), rel=1e-9)
    assert found.ln_ratio.error == pytest.approx(error, rel=1e-9)
    assert found.ratio.value == pytest.approx(found.test.perplexity.value / found.base.perplexity.value)
    assert found.ratio.error == pytest.approx(found.ratio.value * error, rel=1e-9)


def test_divergences_are_those_of_the_definition() -> None:
    base, test, ids = case(2)
    found, expected = compared(base, test, ids).kl, divergences(base, test)
    assert found.mean.value == pytest.approx(expected.mean(), rel=1e-11)
    assert found.mean.error == pytest.approx(stats.sem(expected), rel=1e-11)
    assert (found.min, found.max) == pytest.approx((expected.min(), expected.max()), rel=1e-9)
    quantiles = [found.median, found.p90, found.p95, found.p99, found.p99_9]
    assert quantiles == pytest.approx(np.percentile(expected, [50, 90, 95, 99, 99.9]), rel=1e-9)


def test_tops_and_changes_are_those_of_the_definition() -> None:
    base, test, ids = case(3, noise=1.0)
    found = compared(base, test, ids)
    same = (base.argmax(1) == test.argmax(1)).astype(float)
    change = np.exp(-nll_of(test, ids)) - np.exp(-nll_of(base, ids))
    rms = math.sqrt(np.mean(change**2))
    assert 0 < same.mean() < 1
    assert found.same_top.value == pytest.approx(same.mean())
    assert found.same_top.error == pytest.approx(math.sqrt(same.mean() * (1 - same.mean()) / (len(ids) - 1)))
    assert found.rms_change.value == pytest.approx(rms, rel=1e-12)
    assert found.rms_change.error == pytest.approx(stats.sem(change**2) / (2 * rms), rel=1e-12)


def test_a_divergence_of_almost_nothing_is_still_measured() -> None:
    base, _, ids = case(4)
    base = base.astype(np.float64)
    nudge = 1e-5 * np.random.default_rng(5).standard_normal(base.shape)
    p = special.softmax(base, axis=1)
    second_order = (p * nudge**2).sum(1) / 2 - (p * nudge).sum(1) ** 2 / 2
    found = compared(base, base + nudge, ids)
    assert found.kl.mean.value == pytest.approx(second_order.mean(), rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.floats(0, 50), st.integers(1, 40))
def test_no_divergence_is_negative(seed: int, noise: float, vocab: int) -> None:
    found = compared(*case(seed, rows=12, vocab=vocab, noise=noise))
    assert 0 <= found.kl.min <= found.kl.median <= found.kl.p90 <= found.kl.p99_9 <= found.kl.max


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 12))
def test_equal_logits_differ_in_nothing(seed: int, step: int) -> None:
    base, _, ids = case(seed, rows=25)
    found = compared(base, base.copy(), ids, step)
    assert (found.kl.max, found.kl.mean.error, found.rms_change.value) == (0, 0, 0)
    assert (found.ratio.value, found.ratio.error, found.same_top.value) == (1, 0, 1)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.floats(-1e4, 1e4))
def test_what_is_added_to_all_logits_of_a_row_changes_nothing(seed: int, shift: float) -> None:
    base, test, ids = (part.astype(np.float64) if part.dtype.kind == "f" else part for part in case(seed))
    plain, shifted = compared(base, test, ids), compared(base, test + shift, ids)
    assert shifted.kl.mean.value == pytest.approx(plain.kl.mean.value, abs=1e-10)
    assert shifted.test.nll.value == pytest.approx(plain.test.nll.value, abs=1e-10)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 60))
def test_order_and_blocks_do_not_matter(seed: int, step: int) -> None:
    base, test, ids = case(seed)
    order = np.random.default_rng(seed).permutation(len(ids))
    once, other = compared(base, test, ids, 60), compared(base[order], test[order], ids[order], step)
    assert other.kl.p95 == once.kl.p95
    assert other.ln_ratio.value == pytest.approx(once.ln_ratio.value, abs=1e-12)
    assert other.ln_ratio.error == pytest.approx(once.ln_ratio.error, rel=1e-9)


def test_a_model_alone_has_the_perplexity_that_it_has_in_company() -> None:
    base, test, ids = case(6)
    meter = PerplexityMeter()
    meter.add(test[:20], ids[:20])
    meter.add(test[20:], ids[20:])
    alone, beside = meter.result(99), compared(base, test, ids).test
    assert alone.nll.value == pytest.approx(beside.nll.value, rel=1e-14)
    assert (alone.tokens, alone.text_bytes) == (60, 99)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_are_refused(bad: float) -> None:
    base, test, ids = case(7)
    test[11, 5] = bad
    with pytest.raises(InputError, match="row 11 of the logits holds NaN or infinity"):
        ComparisonMeter().add(base, test, ids)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b, t, i: (b, t[:, :-1], i), r"shapes \(60, 23\) and \(60, 22\)"),
        (lambda b, t, i: (b, t, i[:-1]), r"\(59, V\) was expected"),
        (lambda b, t, i: (b[0], t[0], i), r"shape \(23,\)"),
        (lambda b, t, i: (b, t, i + 20), "ids must be from 0 to 22"),
        (lambda b, t, i: (b, t, i - 23), "ids must be from 0 to 22"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ComparisonMeter().add(*change(*case(8)))


def test_huge_logits_are_no_overflow_and_json_stays_json() -> None:
    meter = ComparisonMeter()
    base = np.array([[0, 3e38], [3e38, 0]], np.float32)
    meter.add(base, -base, np.array([1, 1]))
    found = meter.result().to_json()
    assert json.loads(json.dumps(found, allow_nan=False))["test"]["perplexity"]["value"] is None
    assert found["base"]["text_bytes"] is found["base"]["bits_per_byte"] is None


def test_no_token_gives_no_figure_and_one_gives_no_error() -> None:
    with pytest.raises(InputError, match="no token to predict"):
        ComparisonMeter().result()
    found = compared(*(part[:1] for part in case(9)))
    assert math.isnan(found.kl.mean.error)
    assert found.to_json()["kl"]["mean"]["error"] is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1e30), min_size=2, max_size=60), st.floats(0, 1))
def test_quantiles_from_bins_are_near_the_exact_ones(values: list[float], fraction: float) -> None:
    array, binned = np.array(values), Quantiles(exact=1)
    binned.add(array[:1])
    binned.add(array[1:])
    exact = np.quantile(array, fraction, method="lower"), np.quantile(array, fraction, method="higher")
    assert exact[0] * (1 - 2**-11) - 1e-41 <= binned.at(fraction) <= exact[1] * (1 + 2**-11) + 1e-41
    assert (binned.least, binned.largest) == (array.min(), array.max())


def test_binned_values_are_not_kept() -> None:
    binned = Quantiles(exact=10)
    for _ in range(5):
        binned.add(np.linspace(0, 1, 8))
    assert binned._blocks == []
    assert binned.at(0.5) == pytest.approx(0.5, rel=0.15)


def test_a_small_spread_around_a_large_mean_is_not_lost() -> None:
    values = 1e8 + np.random.default_rng(0).standard_normal(1000)
    moments = Moments(1)
    for block in np.split(values, 8 * [0] + [3, 500]):
        moments.add(block)
    assert moments.error(0) == pytest.approx(stats.sem(values), rel=1e-6)
