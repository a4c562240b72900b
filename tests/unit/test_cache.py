"""Arrays of cached keys and values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.runtime._cache import (
    BLOCK,
    GROWTH,
    cache_names,
    copied,
    grown,
    moved_up,
    round_up,
    without_padding,
)

SIZES = st.integers(0, 100_000)


@given(length=SIZES)
def test_capacities_are_whole_blocks_that_hold_the_length(length: int) -> None:
    capacity = round_up(length)
    assert capacity % BLOCK == 0
    assert length <= capacity < max(length, 1) + BLOCK


@given(capacity=st.integers(1, 400).map(lambda blocks: blocks * BLOCK), extra=st.integers(1, 1000))
def test_growth_is_by_half_at_least_so_that_copying_stays_linear(capacity: int, extra: int) -> None:
    new = grown(capacity, capacity + extra)
    assert new >= capacity + extra
    assert new >= GROWTH * capacity
    assert new % BLOCK == 0


def test_names_are_those_of_the_graph_contract() -> None:
    assert cache_names("present", 2) == [
        "present.0.key",
        "present.0.value",
        "present.1.key",
        "present.1.value",
    ]


def test_copies_hold_the_chosen_rows_up_to_their_lengths() -> None:
    cache = np.arange(3 * 2 * 4 * 5, dtype=np.float32).reshape(3, 2, 4, 5)
    new = copied(cache, np.array([2, 0]), np.array([3, 1]), 6)
    assert new.shape == (2, 2, 6, 5)
    np.testing.assert_array_equal(new[0, :, :3], cache[2, :, :3])
    np.testing.assert_array_equal(new[1, :, :1], cache[0, :, :1])
    assert not new[0, :, 3:].any()
    assert not new[1, :, 1:].any()


def test_padding_of_heads_and_of_the_cache_is_cut_off() -> None:
    caches = [np.full((2, 1, 8, 16), value, np.float32) for value in (1, 2, 3, 4)]
    layers = list(without_padding(caches, np.array([5, 3]), 12))
    assert [(keys.shape, values.shape) for keys, values in layers] == [((2, 1, 5, 12), (2, 1, 5, 12))] * 2
    assert [float(keys[0, 0, 4, 11]) for keys, _ in layers] == [1, 3]
    assert not layers[0][0][1, :, 3:].any()


def test_rows_that_stay_are_moved_up_in_their_own_memory() -> None:
    cache = np.arange(4 * 2 * 4 * 5, dtype=np.float32).reshape(4, 2, 4, 5)
    before = cache.copy()
    kept = moved_up(cache, np.array([0, 2, 3]), np.array([4, 3, 1]))
    assert kept.base is not None
    assert np.shares_memory(kept, cache)
    np.testing.assert_array_equal(kept[0], before[0])
    np.testing.assert_array_equal(kept[1, :, :3], before[2, :, :3])
    np.testing.assert_array_equal(kept[2, :, :1], before[3, :, :1])
