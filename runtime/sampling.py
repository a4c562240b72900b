"""From the logits of one position to the next token: filters, then one draw.

    sampler = Sampler(sampling=Sampling(temperature=0.8, top_k=50))
    token = sampler.sample(logits, seen, np.random.default_rng(1))

The filters and their order are those of transformers: repetition penalty, temperature, top-k, top-p, min-p.
Everything is a pure function of its arguments, and probabilities are in float64; the random numbers come from
the caller's generator, one uniform a token (none when greedy), so that a stream repeats bit for bit.

Refused: logits that hold NaN or an infinity. One difference from transformers: top-k keeps exactly k tokens
even when several share the k-th largest logit; among equals the lowest id wins, here as in greedy choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import InputError

from ._arguments import shown
from ._few import MOST, draw_of_few, few_largest
from ._filters import (
    Floats,
    Ids,
    check_logits,
    draw,
    largest,
    nucleus,
    penalise,
    refuse_logits,
    softmax,
)

__all__ = [
    "Sampler",
    "Sampling",
    "check_logits",
    "draw",
    "largest",
    "nucleus",
    "penalise",
    "probable",
    "softmax",
]

Mask = NDArray[np.bool_]

_RANGES = {
    "temperature": (0.0, 1e6),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (1e-6, 1e6),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is chosen.

    Raises:
        InputError: if a value is out of its range.
    """

    temperature: float = 0.8
    """Divides the logits; 0 is greedy: the largest logit, the lowest id among equals."""
    top_k: int = 50
    """Keep exactly this many of the most probable tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the fewest most probable tokens whose probabilities reach this sum, at least one; 1 keeps all."""
    min_p: float = 0.0
    """Keep tokens at least this many times as probable as the most probable one; 0 keeps all."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of ids that already stand in the text; 1 is off."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            _check_real(name, getattr(self, name), low, high)
        if not isinstance(self.top_k, Integral) or isinstance(self.top_k, bool) or self.top_k < 0:
            raise InputError(
                f"top_k is {shown(self.top_k)}; it must be an integer of at least 0, where 0 keeps all."
            )

    @property
    def greedy(self) -> bool:
        """Whether no random number is used."""
        return self.temperature == 0

    @property
    def simple(self) -> bool:
        """Whether nothing but the temperature and a small top-k matters."""
        small = 1 <= self.top_k <= MOST and self.top_p == 1 and self.min_p == 0
        return self.repetition_penalty == 1 and (self.greedy or small)


def _check_real(name: str, value: object, low: float, high: float) -> None:
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_real and low <= value <= high):  # type: ignore[operator]  # NaN fails the comparison
        raise InputError(f"{name} is {shown(value)}; it must be a number from {low:g} to {high:g}.")


def probable(logits: NDArray[Any], sampling: Sampling) -> tuple[Ids, Floats]:
    """Apply temperature (above 0), top-k, top-p and min-p to logits (V,); minus infinity forbids an id.

    Returns:
        The ids left, ascending, and their probabilities, whose sum is 1.
    """
    ids = largest(logits, sampling.top_k or logits.size)
    probabilities = softmax(logits[ids].astype(np.float64), sampling.temperature)
    if sampling.top_p < 1:
        kept = nucleus(probabilities, sampling.top_p)
        ids, probabilities = ids[kept], probabilities[kept]
    floor = sampling.min_p * probabilities.max()
    if probabilities.min() <= floor:  # or an id of probability 0 is among them
        likely = (probabilities > 0) & (probabilities >= floor)
        ids, probabilities = ids[likely], probabilities[likely]
    return ids, probabilities / probabilities.sum()


def _refuse_infinity(logits: NDArray[Any], most: float) -> None:
    if not math.isfinite(most):
        refuse_logits(logits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Chooses tokens as ``sampling`` says, among the ids that are allowed.

    Raises:
        InputError: if no id is allowed.
    """

    sampling: Sampling
    """The filters."""
    allowed: Mask | None = None
    """(V,), False for ids that are never chosen, such as those that the tokenizer lacks. None: all."""

    _span: int | None = field(init=False, repr=False, compare=False)
    """How many ids are allowed, if they are the first ones; else None."""

    _simple: bool = field(init=False, repr=False, compare=False)
    """Whether nothing but the temperature and a small top-k matters, among the first ids."""

    def __post_init__(self) -> None:
        span = None
        if self.allowed is not None:
            count = int(self.allowed.sum())
            if count == 0:
                raise InputError(
                    f"none of the {self.allowed.size} token ids is allowed; at least one must be."
                )
            span = count if self.allowed[:count].all() else None
        object.__setattr__(self, "_span", span)
        object.__setattr__(self, "_simple", self.sampling.simple and (self.allowed is None or bool(span)))

    def _scores(self, logits: NDArray[Any], seen: Sequence[int] | Ids) -> NDArray[Any]:
        """Return logits (V,) after the repetition penalty; forbidden ids are minus infinity, or cut off.

        Raises:
            BundleError: if a logit is NaN or infinite.
            InputError: if ``allowed`` is for another number of ids.
        """
        check_logits(logits)
        scores = penalise(logits, seen, self.sampling.repetition_penalty)
        if self.allowed is None:
            return scores
        if self.allowed.shape != scores.shape:
            raise InputError(
                f"the mask of allowed ids has {self.allowed.size} entries for {scores.size} logits."
            )
        return scores[: self._span] if self._span else np.where(self.allowed, scores, -math.inf)

    def distribution(self, logits: NDArray[Any], seen: Sequence[int] | Ids = ()) -> tuple[Ids, Floats]:
        """Return the ids that may come next, ascending, and their probabilities.

        Args:
            logits: of the last position, (V,).
            seen: the ids of prompt and text so far, which the repetition penalty looks at.

        Raises:
            BundleError: if a logit is NaN or infinite.
        """
        scores = self._scores(logits, seen)
        if self.sampling.greedy:
            return np.array([scores.argmax()]), np.ones(1)
        return probable(scores, self.sampling)

    def sample(
        self,
        logits: NDArray[Any],
        seen: Sequence[int] | Ids,
        generator: np.random.Generator | None = None,
    ) -> int:
        """Return the next token's id; uses one uniform number of ``generator``, none when greedy.

        Raises:
            BundleError: if a logit is NaN or infinite.
            InputError: if there is no generator and the choice is not greedy.
        """
        if generator is None and not self.sampling.greedy:
            raise InputError(
                f"temperature {self.sampling.temperature:g} needs a random generator; pass one, or 0."
            )
        if self._simple and (self.allowed is None or self.allowed.size == logits.size):
            return self._sample_simply(logits, generator)
        ids, probabilities = self.distribution(logits, seen)
        if self.sampling.greedy or generator is None:
            return int(ids[0])
        return int(draw(ids, probabilities, generator.random()))

    def _sample_simply(self, logits: NDArray[Any], generator: np.random.Generator | None) -> int:
        """Return the next token's id in less time, where ``simple``, after the checks of ``_scores``."""
        # It is NaN if one logit is; this touches less code and memory than a reduction does.
        if not math.isfinite(logits[logits.argmin()]):
            refuse_logits(logits)
        allowed = logits if self._span is None else logits[: self._span]
        if self.sampling.greedy or generator is None:
            top = logits.argmax()
            _refuse_infinity(logits, logits[top])
            return int(top if top < allowed.size else allowed.argmax())
        ids, held = few_largest(allowed, int(self.sampling.top_k))
        # The largest of all is among those held, unless it may be one that is not allowed.
        _refuse_infinity(logits, max(held) if self._span is None else logits[logits.argmax()])
        return draw_of_few(ids, held, self.sampling.temperature, generator.random())
