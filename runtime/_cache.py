"""Arrays of cached keys and values: how they grow, shrink and are read.

Shapes: (B, K, C, E): B rows, K heads, C slots, E the cache's head size. A row's tokens fill its first slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ids = NDArray[np.int64]

BLOCK = 256  # slots: capacities are multiples of it
GROWTH = 1.5  # at least, so that n tokens cost O(n) copying in all


def round_up(length: int) -> int:
    """Return the least capacity in whole blocks that holds ``length`` tokens."""
    return -(-max(length, 1) // BLOCK) * BLOCK


def grown(capacity: int, needed: int) -> int:
    """Return a capacity for ``needed`` tokens when ``capacity`` is too small."""
    return max(round_up(needed), round_up(int(capacity * GROWTH)))


def cache_names(prefix: str, n_layer: int) -> list[str]:
    """Return the names of the cache's tensors: key and value of each layer."""
    return [f"{prefix}.{layer}.{part}" for layer in range(n_layer) for part in ("key", "value")]


def copied(cache: Array, rows: Ids, lengths: Ids, capacity: int) -> Array:
    """Return a new cache of ``capacity`` slots with some rows of an old one, of the given lengths.

    Slots beyond a row's length are zeros that no one has touched, so they take no memory yet.
    """
    new = np.zeros((len(rows), cache.shape[1], capacity, cache.shape[3]), cache.dtype)
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        new[index, :, :length] = cache[row, :, :length]
    return new


def moved_up(cache: Array, rows: Ids, lengths: Ids) -> Array:
    """Keep some rows, in ascending order, of a cache in its own memory; only rows that move are copied."""
    for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if row != index:
            cache[index, :, :length] = cache[row, :, :length]
    return cache[: len(rows)]


def without_padding(caches: Sequence[Array], lengths: Ids, head_size: int) -> Iterator[tuple[Array, Array]]:
    """Yield copies of keys and values of each layer, cut to the longest row and the model's head size."""
    rows, longest = np.arange(lengths.size), int(lengths.max(initial=0))
    for keys, values in pairs(caches):
        yield (
            copied(keys[..., :head_size], rows, lengths, longest),
            copied(values[..., :head_size], rows, lengths, longest),
        )


def pairs(caches: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Pair keys with values: the list alternates between them."""
    return list(zip(caches[::2], caches[1::2], strict=True))
