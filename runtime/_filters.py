"""Filters of logits and draws: pure functions over one position, the parts of gpt_onnx.runtime.sampling.

ids = largest(logits, 50)
token = draw(ids, softmax(logits[ids].astype(np.float64), 0.8), generator.random())
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

GUESSES = (128, 1024)  # tokens sorted when only top-p is on; the first is enough at most places of a text
BINS = 4096  # into which probabilities are dealt where those tokens do not reach p
GROUPS = 1024  # into which logits are dealt to find the largest


def check_logits(logits: NDArray[Any]) -> None:
    """Refuse logits that no token can be drawn from.

    Args:
        logits: those of one position (V,) or of several (..., V).

    Raises:
        BundleError: if a logit is NaN or infinite.
    """
    # Both are NaN if one logit is, and reading twice is cheaper than an array of booleans.
    if math.isfinite(logits.min()) and math.isfinite(logits.max()):
        return
    refuse_logits(logits)


def refuse_logits(logits: NDArray[Any]) -> NoReturn:
    """Raise the error of ``check_logits``, of which the logits are known to be worth."""
    bad = logits.size - int(np.isfinite(logits).sum())
    raise BundleError(
        f"{bad} of {logits.size} logits are NaN or infinite, and only finite ones can be chosen from; "
        "check the bundle on this device with gpt-onnx verify."
    )


def penalise(logits: NDArray[Any], seen: Sequence[int] | Ids, penalty: float) -> NDArray[Any]:
    """Return logits (V,) with the ids in ``seen`` made less likely, in float64; repeats count once.

    Where nothing changes the logits are returned as they are.
    """
    if penalty == 1 or len(seen) == 0:
        return logits
    ids, penalised = np.asarray(seen, dtype=np.int64), logits.astype(np.float64)
    held = penalised[ids]
    penalised[ids] = np.where(held > 0, held / penalty, held * penalty)
    return penalised


def _contenders(values: NDArray[Any], count: int) -> Ids:
    """Return ascending indices that hold the ``count`` largest values (V,) and all ties, and few others.

    The values are dealt into groups; the ``count``-th largest of the groups' maxima is no larger than the
    ``count``-th largest value, so groups whose maximum is below it are out. That takes one pass over V, many
    values at a time; a partition of all V takes some twenty times as long.
    """
    groups = max(GROUPS, 4 * count)
    rounds = values.size // groups
    if rounds < 2:
        return np.arange(values.size)
    dealt, rest = values[: rounds * groups].reshape(rounds, groups), values[rounds * groups :]
    maxima = dealt.max(axis=0)
    threshold = np.partition(maxima, groups - count)[groups - count]
    promising = np.flatnonzero(maxima >= threshold)
    turns, places = np.nonzero(dealt[:, promising] >= threshold)
    others = np.flatnonzero(rest >= threshold)
    return np.concatenate([turns * groups + promising[places], others + rounds * groups])


def largest(values: NDArray[Any], count: int) -> Ids:
    """Return the ascending indices of the ``count`` largest values (V,); the lowest index wins ties.

    Linear in V, which is not sorted; ``count`` is at least 1.
    """
    if count >= values.size:
        return np.arange(values.size)
    contenders = _contenders(values, count)
    held = values[contenders]
    if held.size <= 4 * count:  # so few are sorted sooner than partitioned
        return np.sort(contenders[np.argsort(-held, kind="stable")[:count]])
    threshold = np.partition(held, held.size - count)[held.size - count]
    above = np.flatnonzero(held > threshold)
    ties = np.flatnonzero(held == threshold)[: count - above.size]
    return np.sort(contenders[np.concatenate([above, ties])])


def softmax(logits: Floats, temperature: float) -> Floats:
    """Return probabilities (K,) of logits (K,) divided by a temperature above 0; minus infinity becomes 0."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to minus infinity
        weights = np.exp((logits - logits.max()) / temperature)
    return np.asarray(weights / weights.sum())


def _first(probabilities: Floats, top_p: float) -> tuple[Ids, bool]:
    """Return indices of the fewest that reach a sum, the most probable first, and whether they do.

    Among equals the lowest index is first. Where they do not reach it, it is all of them.
    """
    order = np.argsort(-probabilities, kind="stable")
    reached = np.flatnonzero(np.cumsum(probabilities[order]) >= top_p)
    return (order[: reached[0] + 1], True) if reached.size else (order, False)


def _wide_nucleus(probabilities: Floats, top_p: float) -> Ids:
    """Return what ``nucleus`` returns where it is large: linear in V, but for a sort of a few.

    Probabilities (V,) are dealt into bins of equal width. The bins above the one where the sum is reached are
    in as they are, and those below it are out; that one is dealt again until it is small.
    """
    inside, ids, left = np.zeros(probabilities.size, np.bool_), np.arange(probabilities.size), top_p
    while ids.size > GUESSES[-1]:
        values = probabilities[ids]
        low = values.min()
        width = (values.max() - low) / (BINS - 1)
        if not width > 0:  # all are equal
            break
        bins = ((values - low) / width).astype(np.intp)
        from_top = np.cumsum(np.bincount(bins, weights=values, minlength=BINS)[::-1])
        above = min(int(np.searchsorted(from_top, left)), from_top.size - 1)  # bins that are in
        crossing = from_top.size - 1 - above
        inside[ids[bins > crossing]] = True
        ids = ids[bins == crossing]
        left -= from_top[above - 1] if above else 0.0
    inside[ids[_first(probabilities[ids], left)[0]]] = True
    return np.flatnonzero(inside)


def nucleus(probabilities: Floats, top_p: float) -> Ids:
    """Return the ascending indices of the fewest most probable tokens that reach ``top_p``, at least one.

    Sorts only some of the largest probabilities (K,).
    """
    for guess in GUESSES:
        head = largest(probabilities, guess)
        first, reached = _first(probabilities[head], top_p)
        if reached or head.size == probabilities.size:
            return np.sort(head[first])
    return _wide_nucleus(probabilities, top_p)


def draw(ids: Ids, probabilities: Floats, uniform: float | Floats) -> Any:
    """Return the id or ids at which the cumulative distribution first exceeds ``uniform`` in [0, 1).

    Args:
        ids: the candidates, (K,).
        probabilities: theirs, (K,); an id of probability 0 is never returned.
        uniform: one number, or an array for as many draws.
    """
    cumulative = np.cumsum(probabilities)
    return ids[np.searchsorted(cumulative / cumulative[-1], uniform, side="right")]
