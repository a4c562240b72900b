"""The largest few of many logits and a draw of them, in a fraction of the time of gpt_onnx.runtime._filters.

    ids, held = few_largest(logits, 50)
    token = draw_of_few(ids, held, 0.8, generator.random())

Between two runs of a model nothing is left in the processor's caches, so that a step costs what code and
memory it touches: small numpy arrays are dear, and what follows the passes over the vocabulary is Python.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._filters import GROUPS

MOST = 128
"""Beyond so many, arrays are faster."""


def _all_that_may_be(values: NDArray[Any], count: int) -> list[int]:
    """Return ascending indices that hold the ``count`` largest values (V,) and all ties, and few others.

    See ``_contenders`` of the filters for the reason.
    """
    rounds = values.size // GROUPS
    if rounds < 2:
        return list(range(values.size))
    maxima = np.maximum.reduce(values[: rounds * GROUPS].reshape(rounds, GROUPS), axis=0)
    maxima.partition(GROUPS - count)
    marks, found = (values >= maxima[GROUPS - count]).tobytes(), []
    index = marks.find(1)
    while index >= 0:
        found.append(index)
        index = marks.find(1, index + 1)
    return found


def few_largest(values: NDArray[Any], count: int) -> tuple[list[int], list[float]]:
    """Return the indices that ``largest`` returns, and their values; for finite values (V,).

    ``count`` is at least 1 and at most MOST.
    """
    indices = _all_that_may_be(values, count)
    held = values[indices].tolist()
    if len(indices) <= count:
        return indices, held
    # Stable: the lowest index wins ties.
    best = sorted(sorted(range(len(held)), key=held.__getitem__, reverse=True)[:count])
    return [indices[place] for place in best], [held[place] for place in best]


def draw_of_few(ids: Sequence[int], logits: Sequence[float], temperature: float, uniform: float) -> int:
    """Return what ``draw`` returns for the softmax of some dozens of logits, in less time."""
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    left = uniform * math.fsum(weights)
    for token, weight in zip(ids, weights, strict=True):
        left -= weight
        if left < 0:
            return token
    return max(zip(weights, ids, strict=True))[1]  # rounding kept the sum of all just below
