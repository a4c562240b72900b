"""The loop that turns logits into tokens, for one row or a batch of unequal prompts.

A batch gives each row the tokens that the row alone would get: every row has its own random generator, and a
row that is finished leaves the batch. Text is not known here; see gpt_onnx.runtime.text.

A generation ends with one of these reasons:

    eos         the model chose an end-of-text token; it is not part of the ids
    stop        the model chose one of ``stop_ids``; it is not part of the ids
    length      ``max_new_tokens`` were generated
    context     there is no room for another token (learned positions, frozen graphs)
    cancelled   the caller's ``cancelled`` said so, or the caller stopped listening
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import InputError

from ._arguments import counted, shown
from ._checks import Ids
from ._request import Generators, Request
from .decoder import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What was generated from one prompt."""

    ids: tuple[int, ...]
    """The new tokens, without the one that ended them."""
    finish_reason: str
    """One of the reasons in the module's docstring."""


def spawn(generator: Generators, count: int) -> Sequence[np.random.Generator]:
    """Return one random generator a row: the given ones, or children of the given one or of a fresh one.

    Raises:
        InputError: if it is anything else, or there are more or fewer than rows.
    """
    if generator is None or isinstance(generator, np.random.Generator):
        return (generator or np.random.default_rng()).spawn(count)
    if not isinstance(generator, Sequence) or not all(isinstance(g, np.random.Generator) for g in generator):
        raise InputError(
            f"generator is {shown(generator)}; give a numpy.random.Generator, or a list of one a row."
        )
    if len(generator) != count:
        given = counted(len(generator), "random generator")
        raise InputError(f"{given} for {counted(count, 'row')}; give one a row.")
    return generator


@dataclass(slots=True, kw_only=True)
class Row:
    """A row on its way."""

    index: int
    tokens: list[int]
    """Prompt and new tokens."""
    prompt_length: int
    random: np.random.Generator
    reason: str | None = None
    """Why it ended; None while it has not."""
    pending: list[int] = field(default_factory=list)
    """Tokens that the decoder has not seen."""

    def result(self) -> Generation:
        """Return what was generated, so far or at the end."""
        return Generation(
            ids=tuple(self.tokens[self.prompt_length :]), finish_reason=self.reason or "cancelled"
        )


def start_rows(prompts: Sequence[Ids], request: Request, generator: Generators) -> list[Row]:
    """Return a row for each prompt; with "slide" a prompt is cut to its last window.

    Raises:
        InputError: if a prompt is longer than the window and must not slide.
    """
    rows = []
    for index, (prompt, random) in enumerate(zip(prompts, spawn(generator, len(prompts)), strict=True)):
        tokens = prompt.tolist()
        if request.window is not None and len(tokens) > request.window and not request.slide:
            raise InputError(
                f"prompt {index} has {counted(len(tokens), 'token')} and the maximum context window is "
                f"{request.window}; shorten it, or let the window slide."
            )
        pending = tokens if request.window is None else tokens[-request.window :]
        rows.append(
            Row(index=index, tokens=tokens, prompt_length=len(tokens), random=random, pending=pending)
        )
    return rows


def _take(row: Row, token: int, request: Request) -> bool:
    """Add a sampled token to a row; return whether it is new text, and not an end."""
    ends = {"eos": request.eos_ids, "stop": request.stop_ids}
    row.reason = next((reason for reason, ids in ends.items() if token in ids), None)
    if row.reason:
        return False
    row.tokens.append(token)
    row.pending = [token]
    if len(row.tokens) - row.prompt_length >= request.max_new_tokens:
        row.reason = "length"
    return True


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


def _step(rows: Sequence[Row], decoder: Decoder, request: Request) -> Iterator[tuple[Row, int]]:
    """Compute one step and yield the new tokens."""
    logits: list[NDArray[Any]] = decoder.append([row.pending for row in rows])
    looks_back = request.sampler.sampling.repetition_penalty != 1
    for row, values in zip(rows, logits, strict=True):
        token = request.sampler.sample(values, row.tokens if looks_back else (), row.random)
        if _take(row, token, request):
            yield row, token


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
    try:
        while live:
            if request.cancelled is not None and request.cancelled():
                return
            yield from _step(live, decoder, request)
            _make_room(live, decoder, request)
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
