"""The largest few of many logits and a draw of them, in a fraction of the time of gpt_onnx.runtime._filters.

    ids, held = few_largest(logits, 50)
    token = draw_of_few(ids, held, 0.8, generator.random())

Between two runs of a model nothing is left in the processor's caches, so that a step costs what code and
memory it touches: small numpy arrays are dear, and what follows the passes over the vocabulary is Python.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._filters import GROUPS, Ids, largest

MOST = 128
"""Beyond so many, arrays are faster."""


def _all_that_may_be(values: NDArray[Any], count: int) -> Ids:
    """Return ascending indices that hold the ``count`` largest values (V,) and all ties, and few others.

    See ``_contenders`` of the filters for the reason.
    """
    rounds = values.size // GROUPS
    if rounds < 2:
        return np.arange(values.size)
    maxima = np.maximum.reduce(values[: rounds * GROUPS].reshape(rounds, GROUPS), axis=0)
    maxima.partition(GROUPS - count)
    indices: Ids = (values >= maxima[GROUPS - count]).nonzero()[0]
    return indices


def few_largest(values: NDArray[Any], count: int) -> tuple[list[int], list[float]]:
    """Return the indices that ``largest`` returns, and their values; for finite values (V,).

    ``count`` is at least 1 and at most MOST.
    """
    indices = _all_that_may_be(values, count)
    ids, held = indices.tolist(), values[indices].tolist()
    if len(ids) <= count:
        return ids, held
    ordered = sorted(held)
    least = ordered[-count]
    if ordered[-count - 1] == least:  # more are equal than there is room for
        indices = largest(values, count)
        return indices.tolist(), values[indices].tolist()
    kept = [index for index, value in zip(ids, held, strict=True) if value >= least]
    return kept, [value for value in held if value >= least]


def draw_of_few(ids: Sequence[int], logits: Sequence[float], temperature: float, uniform: float) -> int:
    """Return what ``draw`` returns for the softmax of some dozens of logits, in less time.

    Where ``uniform`` is within rounding of the border between two ids, either may come.
    """
    top = max(logits)
    reached = list(accumulate([math.exp((logit - top) / temperature) for logit in logits]))
    total = reached[-1]
    return ids[bisect_right(reached, uniform, key=lambda weight: weight / total)]
