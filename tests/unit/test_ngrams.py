"""What came next the last time, against a search through the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.runtime._ngrams import LENGTHS, NO_GUESS, NgramIndex

TEXTS = st.lists(st.integers(0, 3), max_size=60)


def searched(tokens: list[int], count: int) -> tuple[list[int], int]:
    """Return the guess and its length by looking at every earlier place, the last one first."""
    for length in LENGTHS:
        last = tokens[-length:]
        for place in range(len(tokens) - 1, length - 1, -1):
            if len(last) == length and tokens[place - length : place] == last:
                whole = list(tokens)
                for index in range(place, place + count):
                    whole.append(whole[index])
                return whole[len(tokens) :], length
    return [], 0


@given(tokens=TEXTS, count=st.integers(1, 20))
def test_the_longest_earlier_end_of_a_text_is_found_where_it_stood_last(
    tokens: list[int], count: int
) -> None:
    guess = NgramIndex(tokens).guess(count)
    assert (guess.tokens, guess.length) == searched(tokens, count)


@given(tokens=TEXTS)
def test_a_text_that_grows_is_a_text_that_was_given(tokens: list[int]) -> None:
    index = NgramIndex(tokens[:10])
    for token in tokens[10:]:
        index.add(token)
    assert index.guess(7) == NgramIndex(tokens).guess(7)
    assert len(index) == len(tokens)


def test_a_guess_that_reaches_the_end_goes_on_as_a_text_that_repeats() -> None:
    assert NgramIndex([7, 1, 2, 3, 1, 2]).guess(8).tokens == [3, 1, 2, 3, 1, 2, 3, 1]


def test_a_text_without_repetition_gives_no_guess() -> None:
    assert NgramIndex(range(100)).guess(4) == NO_GUESS
    assert NgramIndex([]).guess(4) == NO_GUESS


def test_a_collision_of_keys_loses_the_guess_and_nothing_else(monkeypatch: object) -> None:
    index = NgramIndex([1, 2, 3, 1, 2])
    for _, followers in index._followers:
        for key in followers:
            followers[key] = 4  # another place than the key's
    assert index.guess(3) == NO_GUESS
