"""The loop that turns logits into tokens, for one row or a batch of unequal prompts.

A batch gives each row the tokens that the row alone would get: every row has its own random generator, and a
row that is finished leaves the batch. A row that is alone may be guessed ahead (_speculation.py): its tokens
are the same and take fewer runs. Text is not known here; see gpt_onnx.runtime.text.

A generation ends with one of these reasons:

    eos         the model chose an end-of-text token; it is not part of the ids
    stop        the model chose one of ``stop_ids``; it is not part of the ids
    length      ``max_new_tokens`` were generated
    context     there is no room for another token (learned positions, frozen graphs)
    cancelled   the caller's ``cancelled`` said so, or the caller stopped listening
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError

from ._checks import check_finite
from ._request import Request
from ._rows import Generation, Row, start_rows
from ._speculation import MOST_GUESSED, make_speculator
from .decoder import Decoder

__all__ = ["Generation", "Row", "SpeculationWarning", "TokenStream", "run", "start_rows"]

Array = NDArray[Any]


class SpeculationWarning(UserWarning):
    """Guesses were asked for where none can be tried."""


def _make_room(rows: Sequence[Row], decoder: Decoder, request: Request) -> None:
    """End or slide the rows whose window is full; a slid row starts anew with the last half of its window."""
    if request.window is None:
        return
    lengths = list(decoder.lengths)
    for slot, row in enumerate(rows):
        if row.reason or lengths[slot] < request.window:
            continue
        if not request.slide:
            row.reason = "context"
            continue
        row.pending = row.tokens[-max(request.window // 2, 1) :]
        lengths[slot] = 0
    if lengths != list(decoder.lengths):
        decoder.rewind(lengths)


def _drop_ended(rows: list[Row], decoder: Decoder) -> list[Row]:
    """Take the ended rows out of the batch."""
    slots = [slot for slot, row in enumerate(rows) if row.reason is None]
    if slots and len(slots) < len(rows):
        decoder.keep_rows(slots)
    return [rows[slot] for slot in slots]


def _choose(row: Row, logits: Array, decoder: Decoder, request: Request, guessed: int | None = None) -> int:
    """Return the next token of a row from logits (V,); ``guessed`` is what was tried in its place."""
    try:
        token = request.sampler.sample(logits, () if row.seen is None else row.seen.ids, row.random)
    except BundleError:
        check_finite([logits[None]], decoder.origin)  # says which graph
        raise
    if row.speculator is not None:
        row.speculator.chosen(token, guessed)
    return token


def _step(rows: Sequence[Row], decoder: Decoder, request: Request) -> Iterator[tuple[Row, int]]:
    """Compute one step and yield the new tokens."""
    logits = decoder.extend([np.array(row.pending, np.int64) for row in rows])
    for row, values in zip(rows, logits, strict=True):
        token = _choose(row, values[0], decoder, request)
        if row.take(token, request):
            yield row, token


def _room_for_guesses(row: Row, decoder: Decoder, request: Request) -> int:
    """Return how many guessed tokens could become text, and go past no length that plain steps respect."""
    length = decoder.lengths[0] + len(row.pending)
    limits = [limit - length for limit in (request.window, decoder.trained_length) if limit is not None]
    left = [limit for limit in limits if limit >= 0]  # the trained length may lie behind
    return min(request.max_new_tokens - row.new_tokens - 1, MOST_GUESSED, *left)


def _try(row: Row, guess: Sequence[int], decoder: Decoder, request: Request) -> Iterator[tuple[Row, int]]:
    """Compute one run over the row's last token and a guess, and yield the new tokens.

    Each token is chosen from the logits behind the tokens before it, as it would be without guesses, with the
    same random number; a guess that is equal saves a run. So a token x is accepted with its probability p(x)
    and else replaced by one drawn from p without x: the rejection sampling of Leviathan et al. (2023) for
    guesses that are not drawn at random.
    """
    speculator = row.speculator
    assert speculator is not None
    start, right = decoder.lengths[0] + 1, 0
    started = time.perf_counter()
    [logits] = decoder.extend([np.array([*row.pending, *guess], np.int64)], keep_all=True)
    speculator.tried(len(guess), time.perf_counter() - started)
    for values, guessed in zip(logits, [*guess, None], strict=True):
        if right and request.is_cancelled():
            row.reason = "cancelled"
            return
        token = _choose(row, values, decoder, request, guessed)
        right += token == guessed
        if row.take(token, request):
            yield row, token
        if row.reason or token != guessed:
            break
    if right < len(guess):
        decoder.rewind([start + right])


def _alone(row: Row, decoder: Decoder, request: Request) -> Iterator[tuple[Row, int]]:
    """Generate with a single row that has one pending token, while it has: a loop that touches little."""
    if row.speculator is None and decoder.takes_guesses:
        row.speculator = make_speculator(request.speculate, row.tokens)
    speculator = row.speculator
    while row.reason is None and len(row.pending) == 1:
        if request.cancelled is not None and request.cancelled():
            row.reason = "cancelled"
            return
        if speculator is None:
            logits = decoder.step(row.pending[0])
        else:
            guess = speculator.guess(_room_for_guesses(row, decoder, request))
            if guess:
                yield from _try(row, guess, decoder, request)
                _make_room([row], decoder, request)
                continue
            started = time.perf_counter()
            logits = decoder.step(row.pending[0])
            speculator.stepped(time.perf_counter() - started)
        token = _choose(row, logits, decoder, request)
        if row.take(token, request):
            yield row, token
        if request.window is not None:
            _make_room([row], decoder, request)


def _note_unused(decoder: Decoder, request: Request) -> None:
    """Warn where guesses were asked for in so many words and cannot be tried."""
    if isinstance(request.speculate, int) and request.speculate and not decoder.takes_guesses:
        warnings.warn(
            f"speculate is {request.speculate} and this graph computes one token at a time or all of them "
            "anew, so nothing is guessed; export with a cache and without frozen lengths to have it.",
            SpeculationWarning,
            stacklevel=2,
        )


def run(
    rows: Sequence[Row], make_decoder: Callable[[int], Decoder], request: Request
) -> Iterator[tuple[Row, int]]:
    """Generate until every row has ended; yield each new token with its row, step by step.

    Closing the iterator, or an exception in it, leaves the rows that were on their way "cancelled".
    """
    live = list(rows)
    if request.max_new_tokens == 0:
        for row in live:
            row.reason = "length"
        return
    decoder = make_decoder(len(live))
    _note_unused(decoder, request)
    try:
        while live:
            if request.is_cancelled():
                return
            yield from _step(live, decoder, request)
            _make_room(live, decoder, request)
            live = _drop_ended(live, decoder)
            if len(live) == 1:
                yield from _alone(live[0], decoder, request)
                live = _drop_ended(live, decoder)
    finally:
        for row in live:
            row.reason = row.reason or "cancelled"


class TokenStream(Iterator[int]):
    """The new tokens of one prompt, as they come; ``finish_reason`` says why they ended.

    ``close()`` cancels the rest.
    """

    def __init__(self, row: Row, tokens: Iterator[tuple[Row, int]]) -> None:
        self._row = row
        self._tokens = tokens

    def __next__(self) -> int:
        return next(self._tokens)[1]

    @property
    def finish_reason(self) -> str | None:
        """Why the tokens ended; None while they have not."""
        return self._row.reason

    @property
    def generation(self) -> Generation:
        """What was generated so far."""
        return self._row.result()

    def close(self) -> None:
        """Stop; the reason is "cancelled" unless the tokens had ended."""
        close = getattr(self._tokens, "close", None)
        if close is not None:
            close()
        self._row.reason = self._row.reason or "cancelled"
