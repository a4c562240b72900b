"""The sampler against oracles written from the definitions, one token at a time, in float64."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from gpt_onnx.errors import BundleError, InputError
from gpt_onnx.runtime._few import draw_of_few, few_largest
from gpt_onnx.runtime.sampling import (
    Sampler,
    Sampling,
    check_logits,
    draw,
    largest,
    nucleus,
    penalise,
    probable,
    softmax,
)

DRAWS = 100_000
ROUNDING = Fraction(1, 10**13)
NEUTRAL = Sampling(temperature=1.0, top_k=0)
CASES = [
    NEUTRAL,
    Sampling(temperature=0.7, top_k=0),
    Sampling(temperature=1.0, top_k=7),
    Sampling(temperature=1.0, top_k=0, top_p=0.8),
    Sampling(temperature=1.0, top_k=0, min_p=0.1),
    Sampling(temperature=1.0, top_k=0, repetition_penalty=1.5),
    Sampling(temperature=0.8, top_k=12, top_p=0.9, min_p=0.05, repetition_penalty=1.2),
]
finite = st.floats(-60, 60, width=32)
vectors = st.lists(finite, min_size=1, max_size=40).map(lambda values: np.array(values, dtype=np.float32))
samplings = st.builds(
    Sampling,
    temperature=st.one_of(st.just(0.0), st.floats(1e-3, 10)),
    top_k=st.integers(0, 50),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.1, 10),
)


def oracle(logits: NDArray[Any], seen: list[int], sampling: Sampling) -> dict[int, float]:
    """The distribution by the definitions, in plain Python over (logit, id)."""
    scores = {token: float(logit) for token, logit in enumerate(logits)}
    for token in set(seen):
        scores[token] *= sampling.repetition_penalty ** (1 if scores[token] < 0 else -1)
    ranked = sorted(scores, key=lambda token: (-scores[token], token))
    if sampling.temperature == 0:
        return {ranked[0]: 1.0}
    ranked = ranked[: sampling.top_k or len(ranked)]

    def normalised(weights: dict[int, float]) -> dict[int, float]:
        total = math.fsum(weights.values())
        return {token: weight / total for token, weight in weights.items()}

    top = scores[ranked[0]]
    chances = normalised({token: math.exp((scores[token] - top) / sampling.temperature) for token in ranked})
    if sampling.top_p < 1:
        kept: dict[int, float] = {}
        mass = 0.0
        for token in ranked:
            if kept and mass >= sampling.top_p:
                break
            kept[token] = chances[token]
            mass += chances[token]
        chances = normalised(kept)
    threshold = sampling.min_p * max(chances.values())
    return normalised({token: chance for token, chance in chances.items() if chance >= threshold})


def example(size: int = 40, seed: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)


@pytest.mark.parametrize("sampling", CASES, ids=str)
def test_distribution_is_that_of_the_definitions(sampling: Sampling) -> None:
    for seed in range(20):
        logits, seen = example(seed=seed), [1, 5, 5, 30]
        ids, chances = Sampler(sampling=sampling).distribution(logits, seen)
        expected = oracle(logits, seen, sampling)
        assert sorted(expected) == ids.tolist()
        np.testing.assert_allclose(chances, [expected[token] for token in ids.tolist()], rtol=1e-12)


@pytest.mark.parametrize("sampling", CASES, ids=str)
def test_draws_follow_the_distribution(sampling: Sampling) -> None:
    logits, seen = example(), [2, 3]
    ids, chances = Sampler(sampling=sampling).distribution(logits, seen)
    drawn = draw(ids, chances, np.random.default_rng(11).random(DRAWS))
    expected = oracle(logits, seen, sampling)
    counts = np.array([(drawn == token).sum() for token in expected])
    assert counts.sum() == DRAWS  # nothing outside the oracle's support
    frequent = np.array(list(expected.values())) * DRAWS >= 5  # the usual condition for chi-square
    observed = np.append(counts[frequent], counts[~frequent].sum())
    wanted = np.append(np.array(list(expected.values()))[frequent], 1e-12) * DRAWS
    wanted[-1] = max(DRAWS - wanted[:-1].sum(), 1e-9)
    keep = wanted >= 5
    if keep.sum() > 1:
        statistic = ((observed - wanted)[keep] ** 2 / wanted[keep]).sum()
        assert stats.chi2.sf(statistic, keep.sum() - 1) > 1e-3


def test_one_token_at_a_time_draws_what_an_array_draws() -> None:
    sampler = Sampler(sampling=Sampling(temperature=1.3, top_k=9))
    generator = np.random.default_rng(5)
    one_by_one = [sampler.sample(example(), [], generator) for _ in range(200)]
    ids, chances = sampler.distribution(example())
    assert one_by_one == draw(ids, chances, np.random.default_rng(5).random(200)).tolist()


def test_a_token_costs_one_uniform_and_a_greedy_one_none() -> None:
    generator, mirror = np.random.default_rng(1), np.random.default_rng(1)
    Sampler(sampling=Sampling(temperature=0)).sample(example(), [], generator)
    Sampler(sampling=Sampling()).sample(example(), [], generator)
    mirror.random()
    assert generator.random() == mirror.random()


@settings(deadline=None)
@given(vectors, samplings, st.data())
def test_probabilities_sum_to_one_and_are_positive(
    logits: NDArray[np.float32], sampling: Sampling, data: st.DataObject
) -> None:
    seen = data.draw(st.lists(st.integers(0, logits.size - 1), max_size=5))
    ids, chances = Sampler(sampling=sampling).distribution(logits, seen)
    assert (chances > 0).all()
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert (np.diff(ids) > 0).all()
    assert ids.size <= (sampling.top_k or logits.size)


@settings(deadline=None)
@given(vectors, samplings, st.data())
def test_forbidden_ids_are_never_candidates(
    logits: NDArray[np.float32], sampling: Sampling, data: st.DataObject
) -> None:
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=logits.size, max_size=logits.size)))
    allowed[data.draw(st.integers(0, logits.size - 1))] = True
    ids, chances = Sampler(sampling=sampling, allowed=allowed).distribution(logits)
    assert allowed[ids].all()
    assert chances.sum() == pytest.approx(1, abs=1e-12)


@settings(deadline=None)
@given(vectors, st.floats(0, 1, exclude_max=True), samplings)
def test_every_uniform_draws_a_candidate(
    logits: NDArray[np.float32], uniform: float, sampling: Sampling
) -> None:
    ids, chances = Sampler(sampling=sampling).distribution(logits)
    assert draw(ids, chances, uniform) in ids
    assert draw(ids, chances, math.nextafter(1, 0)) in ids


def test_an_allowed_mask_leaves_the_relative_chances_alone() -> None:
    allowed = np.arange(40) % 3 > 0
    ids, chances = Sampler(sampling=NEUTRAL, allowed=allowed).distribution(example())
    weights = np.exp(example()[allowed].astype(np.float64))
    assert ids.tolist() == np.flatnonzero(allowed).tolist()
    np.testing.assert_allclose(chances, weights / weights.sum(), rtol=1e-12)


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    logits = np.array([1, 3, 2, 3, 3], dtype=np.float32)
    assert Sampler(sampling=Sampling(temperature=0)).sample(logits, []) == 1


def test_greedy_looks_at_the_repetition_penalty_and_the_mask() -> None:
    logits = np.array([3, 2.9, 2.8], dtype=np.float32)
    greedy = Sampling(temperature=0, repetition_penalty=1.2)
    assert Sampler(sampling=greedy).sample(logits, [0]) == 1
    assert Sampler(sampling=greedy, allowed=np.array([True, False, True])).sample(logits, [0]) == 2


def test_top_k_keeps_exactly_k_and_the_lowest_ids_of_ties() -> None:
    values = np.array([5, 1, 4, 4, 4, 9], dtype=np.float64)
    assert [largest(values, count).tolist() for count in (1, 2, 3, 4)] == [
        [5],
        [0, 5],
        [0, 2, 5],
        [0, 2, 3, 5],
    ]
    assert largest(values, 60).tolist() == [0, 1, 2, 3, 4, 5]


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(1, 70))
def test_largest_agrees_with_a_stable_sort(values: list[int], count: int) -> None:
    ranked = sorted(range(len(values)), key=lambda index: (-values[index], index))
    assert largest(np.array(values, dtype=np.float64), count).tolist() == sorted(ranked[:count])


@pytest.mark.parametrize("size", [2047, 2048, 5000, 50257])
@pytest.mark.parametrize("count", [1, 50, 700])
@pytest.mark.parametrize("levels", [1, 3, 10**6])
def test_largest_of_many_agrees_with_a_stable_sort(size: int, count: int, levels: int) -> None:
    values = np.random.default_rng(size).integers(levels, size=size).astype(np.float64)
    values[::7] = -np.inf
    ranked = np.argsort(-values, kind="stable")
    assert largest(values, count).tolist() == sorted(ranked[:count].tolist())


@pytest.mark.parametrize("size", [1, 40, 2047, 2048, 50257])
@pytest.mark.parametrize("count", [1, 50, 128])
@pytest.mark.parametrize("levels", [1, 3, 10**6])
def test_the_largest_few_are_the_largest(size: int, count: int, levels: int) -> None:
    values = np.random.default_rng(size).integers(levels, size=size).astype(np.float32)
    ids, held = few_largest(values, count)
    assert ids == largest(values, count).tolist()
    assert held == values[ids].tolist()


uniforms = st.one_of(
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0.0, math.nextafter(0, 1), 0.5, math.nextafter(1, 0)]),
    st.integers(1, 2**20).map(lambda count: 1 - count * 2.0**-53),
)


def borders(values: NDArray[np.float64], temperature: float) -> list[Fraction]:
    """The sums of the probabilities, each with those before it, without rounding but in the weights."""
    weights = [Fraction(math.exp((value - max(values)) / temperature)) for value in values.tolist()]
    sums = list(itertools.accumulate(weights))
    return [total / sums[-1] for total in sums]


@settings(deadline=None, max_examples=500)
@given(vectors, st.floats(1e-6, 1e6), uniforms)
def test_both_draws_are_right_within_rounding(
    logits: NDArray[np.float32], temperature: float, uniform: float
) -> None:
    ids, values = np.arange(logits.size), logits.astype(np.float64)
    upper = borders(values, temperature)
    chances = softmax(values, temperature)
    few, usual = draw_of_few(ids.tolist(), values.tolist(), temperature, uniform), draw(ids, chances, uniform)
    for token in (few, usual):
        below = upper[token - 1] if token else Fraction(0)
        assert below - ROUNDING <= uniform <= upper[token] + ROUNDING
        assert upper[token] > below  # it has a probability
    if min(abs(border - Fraction(uniform)) for border in upper) > ROUNDING:
        assert few == usual


@pytest.mark.parametrize("count", [3, 10, 50, 128])
def test_the_largest_uniform_draws_the_last_token_that_counts(count: int) -> None:
    """Whatever the sums are rounded to: the most probable one is not the answer to everything."""
    ids, generator = list(range(count)), np.random.default_rng(count)
    for _ in range(2000):
        values = generator.normal(0, 2, count).tolist()
        assert draw_of_few(ids, values, 1.0, math.nextafter(1, 0)) == count - 1
    assert draw_of_few(ids, [0.0] * 2 + [-1e6] * (count - 2), 1.0, math.nextafter(1, 0)) == 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("place", [3, 35])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_logit_that_is_not_finite_is_seen_even_where_it_is_forbidden(
    temperature: float, place: int, value: float
) -> None:
    logits, allowed = example(), np.arange(40) < 30
    logits[place] = value
    sampler = Sampler(sampling=Sampling(temperature=temperature), allowed=allowed)
    with pytest.raises(BundleError, match="1 of 40 logits"):
        sampler.sample(logits, [], np.random.default_rng(0))


def test_top_p_keeps_the_smallest_prefix_that_reaches_it() -> None:
    chances = np.array([0.125, 0.5, 0.25, 0.125])
    kept = [nucleus(chances, top_p).tolist() for top_p in (0.0, 0.5, 0.51, 0.75, 0.76, 0.99)]
    assert kept == [[1], [1], [1, 2], [1, 2], [0, 1, 2], [0, 1, 2, 3]]


def test_top_p_over_a_flat_large_vocabulary_sorts_as_far_as_it_must() -> None:
    chances = np.full(1 << 16, 2.0**-16)
    assert nucleus(chances, 0.5).tolist() == list(range(1 << 15))


@pytest.mark.parametrize("kind", ["flat", "nearly flat", "levels", "steep", "one leads"])
@pytest.mark.parametrize("top_p", [0.2, 0.5, 0.9, 0.999999])
def test_top_p_over_a_large_vocabulary_agrees_with_a_sort(kind: str, top_p: float) -> None:
    random = np.random.default_rng(3)
    weights = {
        "flat": np.ones(50257),
        "nearly flat": 1 + 1e-9 * random.random(50257),
        "levels": random.integers(1, 4, 50257).astype(np.float64),
        "steep": np.exp(3 * random.standard_normal(50257)),
        "one leads": np.concatenate([[1e3], 1e-3 * random.random(50256)]),
    }[kind]
    chances = weights / weights.sum()
    order = np.argsort(-chances, kind="stable")
    reached = np.cumsum(chances[order])
    count = int(np.searchsorted(reached, top_p)) + 1
    found = nucleus(chances, top_p)
    if abs(found.size - count) == 1:  # where rounding decides whether the last one is needed
        assert np.abs(reached - top_p).min() < 1e-13
        count = found.size
    assert found.tolist() == sorted(order[:count].tolist())


def test_min_p_is_relative_to_the_most_probable() -> None:
    logits = np.log(np.array([0.5, 0.26, 0.24]))
    ids, _ = probable(logits, dataclasses.replace(NEUTRAL, min_p=0.5))
    assert ids.tolist() == [0, 1]


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    logits = np.array([2.0, -2.0, 0.0, 4.0])
    assert penalise(logits, [0, 1, 1, 2], 2.0).tolist() == [1.0, -4.0, 0.0, 4.0]
    assert logits.tolist() == [2.0, -2.0, 0.0, 4.0]  # the argument is left alone


def test_a_tiny_temperature_is_greedy_without_warnings() -> None:
    assert softmax(np.array([1.0, 3.0, 2.0]), 5e-324).tolist() == [0, 1, 0]


def test_far_apart_logits_do_not_overflow() -> None:
    logits = np.array([-3e38, 3e38], dtype=np.float32)
    assert Sampler(sampling=NEUTRAL).distribution(logits)[0].tolist() == [1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_not_finite_are_an_error(value: float, temperature: float) -> None:
    logits = example()
    logits[[7, 9]] = value
    with pytest.raises(BundleError, match="2 of 40 logits are NaN or infinite"):
        Sampler(sampling=Sampling(temperature=temperature)).sample(logits, [], np.random.default_rng(0))


def test_check_logits_looks_at_every_position() -> None:
    logits = np.zeros((2, 3, 5))
    check_logits(logits)
    logits[1, 2, 4] = math.nan
    with pytest.raises(BundleError, match="1 of 30"):
        check_logits(logits)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_k", True),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1.0),
    ],
)
def test_values_out_of_range_are_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} is {value!r}"):
        Sampling(**{name: value})


def test_numpy_numbers_are_numbers() -> None:
    values: dict[str, Any] = {"temperature": np.float32(0.5), "top_k": np.int64(3)}
    assert Sampling(**values) == Sampling(temperature=0.5, top_k=3)


def test_a_mask_that_allows_nothing_or_has_another_size_is_an_error() -> None:
    with pytest.raises(InputError, match="none of the 4 token ids"):
        Sampler(sampling=NEUTRAL, allowed=np.zeros(4, dtype=np.bool_))
    with pytest.raises(InputError, match="4 entries for 40 logits"):
        Sampler(sampling=NEUTRAL, allowed=np.ones(4, dtype=np.bool_)).distribution(example())


def test_sampling_without_a_generator_is_an_error() -> None:
    with pytest.raises(InputError, match="needs a random generator"):
        Sampler(sampling=NEUTRAL).sample(example(), [])
