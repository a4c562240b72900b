"""Windows over a stream: every token is predicted once, from no less than half a window."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_onnx.errors import InputError
from gpt_onnx.runtime.quality import Tokens, Window, windows
from gpt_onnx.runtime.quality.windows import at_most, window_length

CUTS = st.lists(st.integers(1, 30), max_size=12)
PREFIX = (900, 901)


def stream(count: int, cuts: list[int], sized: bool = True) -> Iterator[Tokens]:
    """Tokens 0, 1, 2, ... where token n has n + 1 bytes, in pieces."""
    ids = np.arange(count)
    for part in np.split(ids, np.cumsum(cuts)) if cuts else [ids]:
        yield Tokens(part, part + 1 if sized else None)


def context_of(window: Window, prefix: int = 0) -> list[tuple[int, int]]:
    """Each predicted token with the number of tokens before it; checks that those are the right ones."""
    found = []
    for index, token in enumerate(window.next_ids):
        seen = window.ids[prefix : window.first + index + 1]
        assert list(seen) == list(range(token - len(seen), token))
        found.append((int(token), len(seen)))
    return found


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 80), CUTS, st.integers(2, 17), st.booleans())
def test_every_token_is_predicted_once_and_in_order(
    count: int, cuts: list[int], length: int, begun: bool
) -> None:
    prefix = PREFIX if begun else ()
    found = list(windows(stream(count, cuts), length=length + len(prefix), prefix=prefix))
    predicted = [token for window in found for token, _ in context_of(window, len(prefix))]
    assert predicted == list(range(0 if begun else 1, count))
    assert all(list(window.ids[: len(prefix)]) == list(prefix) for window in found)
    assert all(len(window.ids) <= length + len(prefix) for window in found)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 80), CUTS, st.integers(2, 17))
def test_all_but_the_first_half_window_have_half_a_window_before_them(
    count: int, cuts: list[int], length: int
) -> None:
    for window in windows(stream(count, cuts), length=length):
        for token, seen in context_of(window):
            assert seen >= min(token, length // 2)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 80), CUTS, st.integers(2, 17))
def test_bytes_are_those_of_the_predicted_tokens(count: int, cuts: list[int], length: int) -> None:
    sizes = [window.text_bytes for window in windows(stream(count, cuts), length=length)]
    assert sum(size or 0 for size in sizes) == sum(range(2, count + 1))
    unsized = windows(stream(count, cuts, sized=False), length=length)
    assert {window.text_bytes for window in unsized} == {None}


def test_no_more_of_a_stream_is_read_than_is_asked_for() -> None:
    def endless() -> Iterator[Tokens]:
        for _ in range(3):
            yield Tokens(np.arange(10), None)
        raise AssertionError("read too far")

    assert sum(len(part) for part in at_most(endless(), 25)) == 25


def test_a_stream_without_end_is_held_a_window_at_a_time() -> None:
    def endless() -> Iterator[Tokens]:
        while True:
            yield Tokens(np.arange(7), None)

    found = windows(endless(), length=16)
    assert [len(next(found).ids) for _ in range(1000)] == [16] * 1000


def test_the_usual_window_is_no_longer_than_any_model_can_take() -> None:
    assert window_length(None, [None, 1024]) == 512
    assert window_length(None, [None, 64, 1024]) == 64
    assert window_length(None, []) == 512
    assert window_length(1024, [None, 1024]) == 1024


def test_windows_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="65 tokens are longer than the 64"):
        window_length(65, [64])
    with pytest.raises(InputError, match="1 tokens leave no context"):
        window_length(1, [64])
    with pytest.raises(InputError, match="no room for text after the tokenizer's own 2"):
        next(windows(stream(9, []), length=3, prefix=PREFIX))
