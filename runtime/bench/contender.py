"""What takes part in a measurement, and what one turn of it is.

A *burst* is one generation with a stop-watch: the prompt and the first token, then each further token alone.
An *answer* is the same without one, but with what is needed to compare two contenders' tokens.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import InputError

SHORTEST_MS = 1e-3  # a busy moment in the call for one token may make the difference to the other negative
WARM_STEPS = 3  # steps before the clock starts: caches and thread pools are cold when a process goes on


class GreedyModel(Protocol):
    """A model that generates greedily."""

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """Forget everything, take B prompts of one length and return the most likely next token of each.

        Args:
            rows: Token ids.
            capacity: Tokens a row to make room for.
        """
        ...

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Take one token a row and return the most likely next ones; returns when they are known."""
        ...

    def scores(self) -> NDArray[np.float32] | None:
        """Return the logits (B, V) that the last tokens were chosen from; None where there are none."""
        ...


class Contender(GreedyModel, Protocol):
    """What takes part: a model that describes itself."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it is, for the report: JSON values, see Facts."""
        ...


@runtime_checkable
class WholeModel(Protocol):
    """A library that generates in one call and cannot be stopped after each token."""

    def generate(self, rows: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
        """Generate exactly so many tokens for each of B prompts, greedily, and return them by row."""
        ...


class WholeContender(WholeModel, Protocol):
    """What takes part with a ``generate`` alone, and describes itself."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """See Contender."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The times of one generation."""

    ttft_ms: float
    """From the prompt's ids to the first token."""
    step_ms: list[float]
    """From each token to the next one; of a WholeContender one number, the mean of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The tokens of one generation, [step][row], and how clear each choice was."""

    tokens: list[list[int]]
    runners_up: list[list[int]]
    """The second most likely token; empty, as are the gaps, where the logits are not to be had."""
    gaps: list[list[float]]
    """The difference of the two largest logits, relative to the largest magnitude of all logits."""


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let the garbage collector rest."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _burst_of_steps(
    contender: GreedyModel, rows: Sequence[Sequence[int]], new_tokens: int, clock: Callable[[], float]
) -> Burst:
    capacity = len(rows[0]) + new_tokens - 1  # the last token is not fed
    tokens = contender.start(rows, capacity)
    for _ in range(min(WARM_STEPS, new_tokens - 1)):
        tokens = contender.step(tokens)
    with _no_collection():
        times = [clock()]
        tokens = contender.start(rows, capacity)
        times.append(clock())
        for _ in range(new_tokens - 1):
            tokens = contender.step(tokens)
            times.append(clock())
    first, *steps = (1e3 * (after - before) for before, after in itertools.pairwise(times))
    return Burst(ttft_ms=first, step_ms=steps)


def _burst_of_whole_calls(
    contender: WholeModel, rows: Sequence[Sequence[int]], new_tokens: int, clock: Callable[[], float]
) -> Burst:
    """Time a call for one token and one for all; what the second takes longer, its steps took."""
    contender.generate(rows, min(1 + WARM_STEPS, new_tokens))
    with _no_collection():
        times = [clock()]
        for count in (1, new_tokens):
            contender.generate(rows, count)
            times.append(clock())
    first, whole = (1e3 * (after - before) for before, after in itertools.pairwise(times))
    return Burst(ttft_ms=first, step_ms=[max(whole - first, SHORTEST_MS) / (new_tokens - 1)])


def run_burst(
    contender: GreedyModel | WholeModel,
    rows: Sequence[Sequence[int]],
    new_tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Burst:
    """Warm up and time one generation of ``new_tokens`` tokens; ``clock`` returns seconds."""
    if isinstance(contender, WholeModel):
        return _burst_of_whole_calls(contender, rows, new_tokens, clock)
    return _burst_of_steps(contender, rows, new_tokens, clock)


def _two_best(scores: NDArray[np.float32]) -> tuple[list[int], list[float]]:
    """Return for each row the runner-up and the relative gap to it."""
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :2]
    best, second = np.take_along_axis(scores, order, axis=1).astype(np.float64).T
    scale = np.maximum(np.abs(scores).max(axis=1), np.finfo(np.float32).tiny)
    return order[:, 1].tolist(), ((best - second) / scale).tolist()


def run_answer(contender: GreedyModel | WholeModel, rows: Sequence[Sequence[int]], new_tokens: int) -> Answer:
    """Generate ``new_tokens`` tokens and note how clear each choice was."""
    if isinstance(contender, WholeModel):
        by_row = contender.generate(rows, new_tokens)
        if any(len(row) != new_tokens for row in by_row):
            lengths = sorted({len(row) for row in by_row})
            raise InputError(
                f"{new_tokens} tokens were asked for and {lengths} came; let no token end a text."
            )
        return Answer(tokens=[list(step) for step in zip(*by_row, strict=True)], runners_up=[], gaps=[])
    tokens: list[list[int]] = []
    clarity: list[tuple[list[int], list[float]]] = []
    while len(tokens) < new_tokens:
        is_first = not tokens
        tokens.append(
            contender.start(rows, len(rows[0]) + new_tokens - 1) if is_first else contender.step(tokens[-1])
        )
        scores = contender.scores()
        clarity += [] if scores is None else [_two_best(scores)]
    return Answer(
        tokens=tokens, runners_up=[second for second, _ in clarity], gaps=[gaps for _, gaps in clarity]
    )
