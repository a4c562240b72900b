"""What takes part in a measurement, and what one turn of it is.

A *burst* is one generation with a stop-watch: the prompt and the first token, then each further token alone.
An *answer* is the same without one, but with what is needed to compare two contenders' tokens.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

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

    def scores(self) -> NDArray[np.float32]:
        """Return the logits (B, V) that the last tokens were chosen from."""
        ...


class Contender(GreedyModel, Protocol):
    """What takes part: a model that describes itself."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it is, for the report: JSON values."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The times of one generation."""

    ttft_ms: float
    """From the prompt's ids to the first token."""
    step_ms: list[float]
    """From each token to the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The tokens of one generation, [step][row], and how clear each choice was."""

    tokens: list[list[int]]
    runners_up: list[list[int]]
    """The second most likely token."""
    gaps: list[list[float]]
    """The difference of the two largest logits, relative to the largest magnitude of all logits."""


def run_burst(
    contender: GreedyModel,
    rows: Sequence[Sequence[int]],
    new_tokens: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Burst:
    """Warm up and time one generation of ``new_tokens`` tokens; ``clock`` returns seconds."""
    capacity = len(rows[0]) + new_tokens - 1  # the last token is not fed
    tokens = contender.start(rows, capacity)
    for _ in range(min(WARM_STEPS, new_tokens - 1)):
        tokens = contender.step(tokens)
    collecting = gc.isenabled()
    gc.disable()
    try:
        times = [clock()]
        tokens = contender.start(rows, capacity)
        times.append(clock())
        for _ in range(new_tokens - 1):
            tokens = contender.step(tokens)
            times.append(clock())
    finally:
        if collecting:
            gc.enable()
    first, *steps = (1e3 * (after - before) for before, after in itertools.pairwise(times))
    return Burst(ttft_ms=first, step_ms=steps)


def _two_best(scores: NDArray[np.float32]) -> tuple[list[int], list[float]]:
    """Return for each row the runner-up and the relative gap to it."""
    order = np.argsort(-scores.astype(np.float64), axis=1, kind="stable")[:, :2]
    best, second = np.take_along_axis(scores, order, axis=1).astype(np.float64).T
    scale = np.maximum(np.abs(scores).max(axis=1), np.finfo(np.float32).tiny)
    return order[:, 1].tolist(), ((best - second) / scale).tolist()


def run_answer(contender: GreedyModel, rows: Sequence[Sequence[int]], new_tokens: int) -> Answer:
    """Generate ``new_tokens`` tokens and note how clear each choice was."""
    tokens = [contender.start(rows, len(rows[0]) + new_tokens - 1)]
    clarity = [_two_best(contender.scores())]
    while len(tokens) < new_tokens:
        tokens.append(contender.step(tokens[-1]))
        clarity.append(_two_best(contender.scores()))
    runners_up, gaps = zip(*clarity, strict=True)
    return Answer(tokens=tokens, runners_up=list(runners_up), gaps=list(gaps))
