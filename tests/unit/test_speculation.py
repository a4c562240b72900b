"""Guesses save runs and change nothing: the same tokens, the same distribution, the same ends."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gpt_onnx.errors import InputError
from gpt_onnx.runtime import OnnxGPT, Sampling, _request
from gpt_onnx.runtime._ngrams import Guess, NgramIndex
from gpt_onnx.runtime._request import Request
from gpt_onnx.runtime._rows import start_rows
from gpt_onnx.runtime._speculation import (
    COUNTS,
    MARGIN,
    Acceptance,
    Adaptive,
    RunTimes,
    Speculation,
    expected_tokens,
    make_speculator,
)
from gpt_onnx.runtime.generation import SpeculationWarning, run
from gpt_onnx.runtime.sampling import Sampler

STATES = 6
GREEDY = Sampling(temperature=0.0)
SAMPLINGS = [
    GREEDY,
    Sampling(temperature=1.0, top_k=0),
    Sampling(temperature=0.7, top_k=3),
    Sampling(temperature=1.0, top_k=0, top_p=0.8),
    Sampling(temperature=1.0, top_k=0, min_p=0.2),
    Sampling(temperature=1.0, top_k=0, repetition_penalty=1.5),
]
ALL = pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
Watch = Callable[[int], bool]


def table(sharpness: float = 3.0) -> np.ndarray:
    """Logits (STATES, STATES) of what follows each token: mostly the next one, so that texts repeat."""
    noise = np.random.default_rng(0).normal(0, 1, (STATES, STATES))
    return (noise + sharpness * np.roll(np.eye(STATES), 1, axis=1)).astype(np.float32)


class MarkovDecoder:
    """A decoder of one row whose logits depend on the last token alone; counts its runs."""

    takes_guesses, trained_length, limit, origin = True, None, None, Path("markov")

    def __init__(self, logits: np.ndarray) -> None:
        self.tokens: list[int] = []
        self.logits, self.runs = logits, 0

    @property
    def lengths(self) -> tuple[int, ...]:
        return (len(self.tokens),)

    def extend(self, new: Sequence[np.ndarray], keep_all: bool = False) -> list[np.ndarray]:
        self.tokens += new[0].tolist()
        self.runs += 1
        return [self.logits[new[0] if keep_all else new[0][-1:]]]

    def step(self, token: int) -> np.ndarray:
        [[last]] = self.extend([np.array([token])])
        return np.asarray(last)

    def rewind(self, lengths: Sequence[int]) -> None:
        self.tokens = self.tokens[: lengths[0]]


def make_request(sampling: Sampling, count: int, speculate: int | str, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "sampler": Sampler(sampling=sampling),
        "max_new_tokens": count,
        "eos_ids": frozenset(),
        "stop_ids": frozenset(),
        "window": None,
        "slide": False,
        "cancelled": None,
        "speculate": speculate,
    }
    return Request(**(values | changes))


def generate(
    sampling: Sampling, count: int, speculate: int | str, seed: int = 0, **changes: Any
) -> tuple[Any, MarkovDecoder]:
    """Generate with a Markov chain; return the generation and the decoder."""
    decoder = MarkovDecoder(table())
    request = make_request(sampling, count, speculate, **changes)
    [row] = start_rows([np.array([0, 1, 2])], request, [np.random.default_rng(seed)])
    for _ in run([row], lambda rows: cast(Any, decoder), request):
        pass
    return row.result(), decoder


# --- exactness ------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("speculate", ["auto", 1, 4, 31])
def test_a_seed_gives_the_same_tokens_with_guesses(sampling: Sampling, speculate: int | str) -> None:
    for seed in range(5):
        plain, runs = generate(sampling, 150, "off", seed)
        guessed, fewer = generate(sampling, 150, speculate, seed)
        assert guessed == plain
        assert fewer.runs <= runs.runs
        assert guessed.speculation.accepted == runs.runs - fewer.runs


@pytest.mark.parametrize("sampling", [SAMPLINGS[1], SAMPLINGS[2]], ids=str)
def test_tokens_follow_the_distribution_whatever_is_guessed(sampling: Sampling) -> None:
    generation, _ = generate(sampling, 6000, 5)
    assert 1000 < generation.speculation.accepted < generation.speculation.proposed
    pairs = Counter(zip(generation.ids, generation.ids[1:], strict=False))
    for state in range(STATES):
        ids, chances = Sampler(sampling=sampling).distribution(table()[state])
        counts = np.array([pairs[state, int(token)] for token in ids])
        assert sum(pairs[state, token] for token in range(STATES)) == counts.sum()
        assert stats.chisquare(counts, chances * counts.sum()).pvalue > 1e-4


def test_a_small_model_draws_from_its_distribution_whatever_is_guessed(
    tiny_bundle: Any, monkeypatch: Any
) -> None:
    engine, prompt = OnnxGPT.load(tiny_bundle().path, threads=1), [5, 6, 7]
    sampling = Sampling(temperature=1.5, top_k=3)
    sampler = Sampler(sampling=sampling)

    def chances(*behind: int) -> dict[int, float]:
        ids, values = sampler.distribution(engine.logits([*prompt, *behind])[0, -1])
        return dict(zip(ids.tolist(), values, strict=True))

    expected: Counter[tuple[int, ...]] = Counter()
    for first, chance in chances().items():
        for second, then in chances(first).items():
            for third, last in chances(first, second).items():
                expected[first, second, third] = chance * then * last  # type: ignore[assignment]
    likeliest = max(expected, key=lambda text: expected[text])
    guess = Guess(tokens=[*likeliest[1:], 0], length=2)
    monkeypatch.setattr(NgramIndex, "guess", lambda self, count: guess)
    random, counts, accepted = np.random.default_rng(1), Counter[tuple[int, ...]](), 0
    for _ in range(400):
        [found] = engine.generate(prompt, 3, sampling, generator=random, speculate=2)
        counts[found.ids] += 1
        assert found.speculation is not None
        accepted += found.speculation.accepted
    observed = [counts[text] for text in expected]
    assert sum(observed) == 400
    assert 50 < accepted < 750
    assert stats.chisquare(observed, np.array(list(expected.values())) * 400).pvalue > 1e-4


@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_a_real_graph_gives_the_plain_tokens(tiny_bundle: Any, target: str) -> None:
    engine = OnnxGPT.load(tiny_bundle(target).path, threads=1)
    prompt = [int(token) for token in np.random.default_rng(0).integers(0, 97, 12)] * 2
    for sampling in (GREEDY, Sampling(temperature=0.3, top_k=2)):
        for speculate in (1, 4, "auto"):
            plain, found = (
                engine.generate(prompt, 36, sampling, generator=np.random.default_rng(3), speculate=how)
                for how in ("off", speculate)
            )
            assert found == plain
            assert plain[0].speculation is None


# --- ends -----------------------------------------------------------------------------------------


def text() -> tuple[int, ...]:
    ids: tuple[int, ...] = generate(GREEDY, 40, "off")[0].ids
    return ids


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 39), st.integers(1, 8))
def test_no_more_tokens_are_made_than_were_asked_for(count: int, most: int) -> None:
    generation, decoder = generate(GREEDY, count, most)
    assert generation.ids == text()[:count]
    assert generation.finish_reason == "length"
    assert len(decoder.tokens) <= 3 + count


@pytest.mark.parametrize("kind", ["eos", "stop"])
def test_an_end_within_an_accepted_run_ends_the_text(kind: str) -> None:
    sampling = Sampling(temperature=1.0, top_k=0)
    for seed in range(20):
        ends = {f"{kind}_ids": frozenset({5})}
        assert generate(sampling, 60, 6, seed, **ends)[0] == generate(sampling, 60, "off", seed, **ends)[0]


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("window", [4, 9, 16])
def test_the_window_ends_or_slides_where_it_does_without_guesses(window: int, slide: bool) -> None:
    changes = {"window": window, "slide": slide}
    plain, guessed = (generate(SAMPLINGS[1], 50, how, **changes) for how in ("off", 6))
    assert guessed[0] == plain[0]
    assert guessed[1].tokens == plain[1].tokens


@pytest.mark.parametrize("asked", range(1, 12))
def test_a_cancelled_text_has_the_tokens_up_to_then(asked: int) -> None:
    for how in ("off", 5):
        answers = iter([False] * asked + [True])
        generation, _ = generate(GREEDY, 40, how, cancelled=lambda answers=answers: next(answers))
        assert generation.ids == text()[:asked]
        assert generation.finish_reason == "cancelled"


def test_a_stream_that_is_closed_within_a_run_keeps_what_was_taken(tiny_bundle: Any) -> None:
    engine = OnnxGPT.load(tiny_bundle().path, threads=1)
    prompt, plain = [1, 2, 3] * 5, OnnxGPT.load(tiny_bundle().path, threads=1)
    for taken in range(1, 12):
        stream = engine.stream(prompt, 30, GREEDY, speculate=8)
        first = [next(stream) for _ in range(taken)]
        stream.close()
        assert stream.generation.finish_reason == "cancelled"
        assert stream.generation.ids == tuple(first)
    assert plain.generate(prompt, 11, GREEDY, speculate="off")[0].ids == tuple(first)


# --- where ----------------------------------------------------------------------------------------


def test_several_rows_are_not_guessed_and_the_last_one_is(tiny_bundle: Any) -> None:
    engine = OnnxGPT.load(tiny_bundle().path, threads=1)
    both = engine.generate([[1, 2] * 6, [3, 4] * 6], 10, GREEDY, speculate=4)
    assert [generation.speculation for generation in both] == [None, None]
    first = both[0].ids[0]
    ended = engine.generate([[1, 2] * 6, [3, 4] * 6], 40, GREEDY, speculate=4, stop_ids=[first])
    tried = [generation.speculation for generation in ended if generation.finish_reason == "length"]
    assert len(tried) != 1 or (tried[0] is not None and tried[0].proposed > 0)


def test_a_graph_that_takes_one_token_a_run_says_so_if_a_number_was_asked_for(tiny_bundle: Any) -> None:
    engine = OnnxGPT.load(tiny_bundle(seq_len=32, batch_size=1).path, threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [plain] = engine.generate([1, 2, 1, 2], 5, GREEDY)
    with pytest.warns(SpeculationWarning, match="speculate is 4 and this graph computes one token at a time"):
        assert engine.generate([1, 2, 1, 2], 5, GREEDY, speculate=4) == [plain]


@pytest.mark.parametrize("speculate", [-1, 32, 1.5, True, "on", "4", [4]])
def test_what_is_no_way_of_guessing_is_refused(tiny_bundle: Any, speculate: Any) -> None:
    engine = OnnxGPT.load(tiny_bundle().path, threads=1)
    with pytest.raises(
        InputError, match=r"speculate is .*; it must be 'auto', 'off' or an integer from 0 to 31"
    ):
        engine.generate([1], 5, speculate=speculate)


# --- policy ---------------------------------------------------------------------------------------


@given(probability=st.floats(0, 1), count=st.integers(0, 31))
def test_the_expected_number_of_tokens_is_the_sum_over_how_many_are_right(
    probability: float, count: int
) -> None:
    chances = [probability**right * (1 - probability) for right in range(count)] + [probability**count]
    expected = sum((right + 1) * chance for right, chance in enumerate(chances))
    assert expected_tokens(probability, count) == pytest.approx(expected, rel=1e-9)


def test_costs_are_medians_and_lie_between_their_neighbours() -> None:
    times = RunTimes()
    assert times.cost(5) > times.cost(1) == 1
    for width, seconds in ((1, [9, 2, 2, 50]), (3, [99, 3, 3, 3]), (7, [99, 5, 5, 5])):
        for second in seconds:
            times.add(width, second)  # the first of each is not counted
    assert [times.cost(width) for width in (1, 2, 3, 5, 7, 9)] == [1, 1.25, 1.5, 2.0, 2.5, 3.0]


def test_one_slow_run_does_not_forbid_a_width() -> None:
    times = RunTimes()
    for width, second in ((1, 1.0), (1, 1.0), (4, 1.0), (4, 100.0)):
        times.add(width, second)
    assert times.cost(4) < 4


def test_what_was_right_counts_less_the_longer_it_is_ago() -> None:
    acceptance = Acceptance()
    for right in [True] * 100:
        acceptance.add(5, right)
    assert acceptance.probability(5) > 0.95
    for right in [False] * 40:
        acceptance.add(5, right)
    assert acceptance.probability(5) < 0.05
    assert acceptance.probability(3) == Acceptance().probability(3)


def told(tokens: Sequence[int], cost: Callable[[int], float]) -> Speculation:
    """Let an adaptive speculator watch a text that is certain, and runs that cost what ``cost`` says."""
    speculator = Adaptive([])
    for width in (1, 1, 1, 1):
        speculator.stepped(cost(width))
    place = 0
    while place < len(tokens) - COUNTS[0] - 1:
        guess = [*speculator.guess(COUNTS[0]), None]
        if len(guess) > 1:
            speculator.tried(len(guess) - 1, cost(len(guess)))
        else:
            speculator.stepped(cost(1))
        for guessed in guess:
            token = tokens[place]
            speculator.chosen(token, guessed)
            place += 1
            if token != guessed:
                break
    return speculator.result


def test_a_text_that_repeats_is_guessed_in_long_runs() -> None:
    tokens = list(range(100)) * 6
    result = told(tokens, lambda width: 1 + 0.2 * (width - 1))
    assert result.accepted > 0.8 * result.proposed
    assert result.runs < 80
    assert result.accepted > 400


def test_a_text_of_chance_is_hardly_guessed() -> None:
    tokens = np.random.default_rng(0).integers(0, 12, 3000).tolist()  # pairs recur, what follows does not
    result = told(tokens, lambda width: 1 + 0.3 * (width - 1))
    cost = 0.3 * result.proposed - result.accepted
    assert cost < 0.03 * 3000


def test_runs_that_cost_as_much_as_their_tokens_are_given_up() -> None:
    result = told(list(range(50)) * 40, lambda width: float(width))
    assert result.runs < 30


def test_margin_and_words() -> None:
    assert MARGIN > 1
    assert make_speculator("off", []) is None
    assert make_speculator(0, []) is None


@pytest.mark.parametrize(("rounds", "means"), [(False, "auto"), (True, "off")])
def test_where_activations_are_rounded_nothing_is_guessed_unasked(rounds: bool, means: str) -> None:
    graphs: Any = SimpleNamespace(rounds_activations=rounds)
    assert _request._speculate(None, graphs) == means
    assert _request._speculate("auto", graphs) == "auto"
    assert _request._speculate(4, graphs) == 4
