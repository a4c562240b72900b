"""The rows of a generation: each a prompt with its new tokens, its random numbers and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpt_onnx.errors import InputError

from ._arguments import counted, shown
from ._checks import Ids
from ._request import Generators, Request
from ._speculation import Speculation, Speculator


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What was generated from one prompt."""

    ids: tuple[int, ...]
    """The new tokens, without the one that ended them."""
    finish_reason: str
    """One of the reasons in the docstring of gpt_onnx.runtime.generation."""
    speculation: Speculation | None = field(default=None, compare=False)
    """What became of guesses, which save time and leave the tokens as they are; None: none were made."""


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


class DistinctIds:
    """The ids that stand in a text, each once, as an array that grows."""

    def __init__(self, tokens: Iterable[int]) -> None:
        self._known = dict.fromkeys(tokens)
        self._array = np.fromiter(self._known, np.int64, len(self._known))

    def add(self, token: int) -> None:
        """Take notice of a token of the text."""
        if token in self._known:
            return
        if len(self._known) == self._array.size:
            self._array = np.resize(self._array, 2 * max(self._array.size, 1))
        self._array[len(self._known)] = token
        self._known[token] = None

    @property
    def ids(self) -> Ids:
        """The ids, in the order in which they came."""
        return self._array[: len(self._known)]


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
    seen: DistinctIds | None = None
    """The ids among its tokens, where the sampler looks back; None where it does not."""
    speculator: Speculator | None = None
    """What makes guesses for it."""

    @property
    def new_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.tokens) - self.prompt_length

    def result(self) -> Generation:
        """Return what was generated, so far or at the end."""
        return Generation(
            ids=tuple(self.tokens[self.prompt_length :]),
            finish_reason=self.reason or "cancelled",
            speculation=None if self.speculator is None else self.speculator.result,
        )

    def take(self, token: int, request: Request) -> bool:
        """Add a chosen token; return whether it is new text, and not an end."""
        if token in request.eos_ids or token in request.stop_ids:
            self.reason = "eos" if token in request.eos_ids else "stop"
            return False
        self.tokens.append(token)
        self.pending = [token]
        if self.seen is not None:
            self.seen.add(token)
        if self.new_tokens >= request.max_new_tokens:
            self.reason = "length"
        return True


def start_rows(prompts: Sequence[Ids], request: Request, generator: Generators) -> list[Row]:
    """Return a row for each prompt; with "slide" a prompt is cut to its last window.

    Raises:
        InputError: if a prompt is longer than the window and must not slide.
    """
    rows, looks_back = [], request.sampler.sampling.repetition_penalty != 1
    for index, (prompt, random) in enumerate(zip(prompts, spawn(generator, len(prompts)), strict=True)):
        tokens = prompt.tolist()
        if request.window is not None and len(tokens) > request.window and not request.slide:
            raise InputError(
                f"prompt {index} has {counted(len(tokens), 'token')} and the maximum context window is "
                f"{request.window}; shorten it, or let the window slide."
            )
        pending = tokens if request.window is None else tokens[-request.window :]
        seen = DistinctIds(tokens) if looks_back else None
        rows.append(
            Row(
                index=index,
                tokens=tokens,
                prompt_length=len(tokens),
                random=random,
                pending=pending,
                seen=seen,
            )
        )
    return rows
