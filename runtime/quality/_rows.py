"""What each row of logits says of the token that follows, in float64.

    score_rows(logits, next_ids)           -ln q(x) and the most likely token, one a row
    compare_rows(base, test, next_ids)     the same of two models, and how far apart their predictions are

With logits z and Z(z) = ln sum exp z, over a vocabulary V, p of the base model and q of the one under test:

    -ln q(x)     = Z(z_q) - z_q[x]
    KL(p || q)   = sum_v p(v) (z_p[v] - z_q[v]) - Z(z_p) + Z(z_q)

Equal logits give a divergence of exactly 0, and rounding never makes one negative. Rows are taken a few at a
time, so that what is computed on the way stays in a core's cache; nothing larger exists in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import InputError

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Logits = NDArray[Any]

IN_CACHE = 2**16
"""Logits in float64 at once, of each model: half a megabyte."""


@dataclass(frozen=True, slots=True)
class _Normed:
    """A few rows of logits, shifted so that the largest of a row is 0."""

    shifted: Floats
    powers: Floats
    """exp of them."""
    total: Floats
    """Their sum, one a row."""

    @classmethod
    def of(cls, logits: Logits) -> _Normed:
        shifted = logits.astype(np.float64)
        shifted -= shifted.max(axis=1, keepdims=True)
        powers = np.exp(shifted)
        return cls(shifted, powers, powers.sum(axis=1))

    def nll(self, next_ids: Ids) -> Floats:
        nll: Floats = np.log(self.total)
        nll -= self.shifted[np.arange(next_ids.size), next_ids]
        return nll


def _divergence(base: _Normed, test: _Normed) -> Floats:
    difference = np.subtract(base.shifted, test.shifted, out=test.powers)  # not needed any more
    mean = np.einsum("rv,rv->r", base.powers, difference) / base.total
    found: Floats = mean - np.log(base.total) + np.log(test.total)
    return found.clip(min=0)


def _checked(logits: Logits, next_ids: Ids) -> None:
    """Refuse logits that are not finite, or do not fit the tokens.

    Raises:
        InputError: saying what was found and expected.
    """
    if logits.ndim != 2 or len(logits) != next_ids.size or next_ids.ndim != 1:
        raise InputError(f"logits have the shape {logits.shape}; ({next_ids.size}, V) was expected.")
    if next_ids.size and not 0 <= next_ids.min() <= next_ids.max() < logits.shape[1]:
        raise InputError(
            f"the tokens reach from {next_ids.min()} to {next_ids.max()}; "
            f"ids must be from 0 to {logits.shape[1] - 1}."
        )
    ends = np.stack([logits.min(axis=1), logits.max(axis=1)])  # NaN is both
    if not np.isfinite(ends).all():
        at = int(np.flatnonzero(~np.isfinite(ends).all(axis=0))[0])
        raise InputError(f"row {at} of the logits holds NaN or infinity; finite logits were expected.")


def _parts(rows: int, vocab_size: int) -> Iterator[slice]:
    step = max(1, IN_CACHE // vocab_size)
    return (slice(low, low + step) for low in range(0, rows, step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of one model, one value a row."""

    nll: Floats
    """-ln of the right token's probability."""
    best: Ids
    """The most likely token, the lowest on ties."""


def score_rows(logits: Logits, next_ids: Ids) -> Scores:
    """Score rows of logits (S, V) by the tokens (S,) that follow them.

    Raises:
        InputError: if shapes or ids do not fit, or a logit is not finite.
    """
    _checked(logits, next_ids)
    nll = np.empty(next_ids.size)
    for part in _parts(*logits.shape):
        nll[part] = _Normed.of(logits[part]).nll(next_ids[part])
    return Scores(nll=nll, best=logits.argmax(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Of two models, one value a row."""

    base: Scores
    test: Scores
    kl: Floats
    """KL(base || test) in nats, at least 0."""

    @property
    def same_top(self) -> NDArray[np.bool_]:
        """Return whether both find the same token the most likely."""
        return np.asarray(self.base.best == self.test.best)

    @property
    def change(self) -> Floats:
        """Return how much more probable the right token is to the model under test."""
        return np.exp(-self.test.nll) - np.exp(-self.base.nll)


def compare_rows(base: Logits, test: Logits, next_ids: Ids) -> Differences:
    """Compare rows of logits (S, V) of two models, by the tokens (S,) that follow them.

    Raises:
        InputError: if shapes or ids do not fit, or a logit is not finite.
    """
    if test.shape != base.shape:
        raise InputError(f"logits have the shapes {base.shape} and {test.shape}; equal ones were expected.")
    _checked(base, next_ids)
    _checked(test, next_ids)
    base_nll, test_nll, kl = np.empty((3, next_ids.size))
    for part in _parts(*base.shape):
        one, other = _Normed.of(base[part]), _Normed.of(test[part])
        base_nll[part], test_nll[part] = one.nll(next_ids[part]), other.nll(next_ids[part])
        kl[part] = _divergence(one, other)
    return Differences(
        base=Scores(nll=base_nll, best=base.argmax(axis=1)),
        test=Scores(nll=test_nll, best=test.argmax(axis=1)),
        kl=kl,
    )
