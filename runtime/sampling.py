"""From the logits of one position to the next token: filters, then one draw.

    sampler = Sampler(sampling=Sampling(temperature=0.8, top_k=50))
    token = sampler.sample(logits, seen, np.random.default_rng(1))

The filters and their order are those of transformers: repetition penalty, temperature, top-k, top-p, min-p.
Everything is a pure function of its arguments in float64; the random numbers come from the caller's
generator, one uniform a token (none when greedy), so that a stream repeats bit for bit.

Refused: logits that hold NaN or an infinity. One difference from transformers: top-k keeps exactly k tokens
even when several share the k-th largest logit; among equals the lowest id wins, here as in greedy choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError, InputError

from ._arguments import shown

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

FIRST_GUESS = 1024  # tokens sorted at first when only top-p is on; enough for almost every p and vocabulary
GROUPS = 1024  # into which logits are dealt to find the largest
GROWTH = 8  # factor on the guess when those tokens do not reach p

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


def _check_real(name: str, value: object, low: float, high: float) -> None:
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_real and low <= value <= high):  # type: ignore[operator]  # NaN fails the comparison
        raise InputError(f"{name} is {shown(value)}; it must be a number from {low:g} to {high:g}.")


def check_logits(logits: NDArray[Any]) -> None:
    """Refuse logits that no token can be drawn from.

    Args:
        logits: those of one position (V,) or of several (..., V).

    Raises:
        BundleError: if a logit is NaN or infinite.
    """
    finite = np.isfinite(logits)
    if not finite.all():
        bad = logits.size - int(finite.sum())
        raise BundleError(
            f"{bad} of {logits.size} logits are NaN or infinite, and only finite ones can be chosen from; "
            "check the bundle on this device with gpt-onnx verify."
        )


def penalise(logits: Floats, seen: Sequence[int] | Ids, penalty: float) -> Floats:
    """Return logits (V,) with the ids in ``seen`` made less likely; repeats in ``seen`` count once."""
    ids = np.asarray(seen, dtype=np.int64)
    if penalty == 1 or ids.size == 0:
        return logits
    penalised = logits.copy()
    penalised[ids] = np.where(logits[ids] > 0, logits[ids] / penalty, logits[ids] * penalty)
    return penalised


def _contenders(values: Floats, count: int) -> Ids:
    """Return ascending indices that hold the ``count`` largest values (V,) and all ties, and few others.

    The values are dealt into groups; the ``count``-th largest of the groups' maxima is no larger than the
    ``count``-th largest value, so what is below it is out. That takes two passes over V, each many values at
    a time; a partition of all V takes some twenty times as long.
    """
    groups = max(GROUPS, 4 * count)
    rounds = values.size // groups
    if rounds < 2:
        return np.arange(values.size)
    maxima = values[: rounds * groups].reshape(rounds, groups).max(axis=0)
    return np.flatnonzero(values >= np.partition(maxima, groups - count)[groups - count])


def largest(values: Floats, count: int) -> Ids:
    """Return the ascending indices of the ``count`` largest values (V,); the lowest index wins ties.

    Linear in V, which is not sorted; ``count`` is at least 1.
    """
    if count >= values.size:
        return np.arange(values.size)
    contenders = _contenders(values, count)
    held = values[contenders]
    threshold = np.partition(held, held.size - count)[held.size - count]
    above = np.flatnonzero(held > threshold)
    ties = np.flatnonzero(held == threshold)[: count - above.size]
    return np.sort(contenders[np.concatenate([above, ties])])


def softmax(logits: Floats, temperature: float) -> Floats:
    """Return probabilities (K,) of logits (K,) divided by a temperature above 0; minus infinity becomes 0."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to minus infinity
        weights = np.exp((logits - logits.max()) / temperature)
    return np.asarray(weights / weights.sum())


def nucleus(probabilities: Floats, top_p: float) -> Ids:
    """Return the ascending indices of the fewest most probable tokens that reach ``top_p``, at least one.

    Sorts only as many of the largest probabilities (K,) as it takes.
    """
    count = FIRST_GUESS
    while True:
        head = largest(probabilities, count)
        order = head[np.argsort(-probabilities[head], kind="stable")]  # stable: the lowest index first
        reached = np.flatnonzero(np.cumsum(probabilities[order]) >= top_p)
        if reached.size:
            return np.sort(order[: reached[0] + 1])
        if count >= probabilities.size:  # rounding kept the sum of all just below top_p
            return head
        count *= GROWTH


def draw(ids: Ids, probabilities: Floats, uniform: float | Floats) -> Any:
    """Return the id or ids at which the cumulative distribution first exceeds ``uniform`` in [0, 1).

    Args:
        ids: the candidates, (K,).
        probabilities: theirs, (K,); an id of probability 0 is never returned.
        uniform: one number, or an array for as many draws.
    """
    cumulative = np.cumsum(probabilities)
    return ids[np.searchsorted(cumulative / cumulative[-1], uniform, side="right")]


def probable(logits: Floats, sampling: Sampling) -> tuple[Ids, Floats]:
    """Apply temperature (above 0), top-k, top-p and min-p to logits (V,); minus infinity forbids an id.

    Returns:
        The ids left, ascending, and their probabilities, whose sum is 1.
    """
    ids = largest(logits, sampling.top_k or logits.size)
    probabilities = softmax(logits[ids], sampling.temperature)
    if sampling.top_p < 1:
        kept = nucleus(probabilities, sampling.top_p)
        ids, probabilities = ids[kept], probabilities[kept]
    likely = (probabilities > 0) & (probabilities >= sampling.min_p * probabilities.max())
    ids, probabilities = ids[likely], probabilities[likely]
    return ids, probabilities / probabilities.sum()


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

    def __post_init__(self) -> None:
        if self.allowed is not None and not self.allowed.any():
            raise InputError(f"none of the {self.allowed.size} token ids is allowed; at least one must be.")

    def scores(self, logits: NDArray[Any], seen: Sequence[int] | Ids = ()) -> Floats:
        """Return logits (V,) in float64 after the repetition penalty; forbidden ids are minus infinity.

        Raises:
            BundleError: if a logit is NaN or infinite.
            InputError: if ``allowed`` is for another number of ids.
        """
        check_logits(logits)
        scores = penalise(logits.astype(np.float64), seen, self.sampling.repetition_penalty)
        if self.allowed is None:
            return scores
        if self.allowed.shape != scores.shape:
            raise InputError(
                f"the mask of allowed ids has {self.allowed.size} entries for {scores.size} logits."
            )
        return np.where(self.allowed, scores, -math.inf)

    def distribution(self, logits: NDArray[Any], seen: Sequence[int] | Ids = ()) -> tuple[Ids, Floats]:
        """Return the ids that may come next, ascending, and their probabilities.

        Args:
            logits: of the last position, (V,).
            seen: the ids of prompt and text so far, which the repetition penalty looks at.

        Raises:
            BundleError: if a logit is NaN or infinite.
        """
        scores = self.scores(logits, seen)
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
        ids, probabilities = self.distribution(logits, seen)
        if self.sampling.greedy:
            return int(ids[0])
        if generator is None:
            raise InputError(
                f"temperature {self.sampling.temperature:g} needs a random generator; pass one, or 0."
            )
        return int(draw(ids, probabilities, generator.random()))
