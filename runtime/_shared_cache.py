"""The decoder for GroupQueryAttention: one cache buffer for each layer, written in place.

Past and present are the same memory, (B, K, C, E) with C slots. The attention mask (B, R) has ones for the
tokens there are and zeros after them; it reaches R slots, whole blocks that hold the longest row, so that a
step costs the same whatever the capacity. A run of a few new tokens binds nothing anew: ids, positions, mask
and logits are arrays that change in place. Several tokens at once over a non-empty cache work for one row
only, so each row's prompt is computed alone, in its slice of the batch's cache, without padding.

The buffers are in the CPU's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._cache import Array, cache_names, copied, grown, moved_up, round_up, without_padding
from ._checks import Ids
from ._session import Binding
from .decoder import Decoder, Graphs

WIDE = 32
"""Most new tokens of one row whose arrays are kept, as they may well come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What a run of S new tokens reads and writes, bound once."""

    binding: Binding
    ids: Ids
    """(B, S)"""
    positions: Ids
    """(B, S)"""
    logits: Array
    """(B, S, V)"""


class SharedCacheDecoder(Decoder):
    """See the module. ``capacity`` is the number of tokens a row to make room for at first."""

    def __init__(self, graphs: Graphs, batch_size: int, capacity: int | None = None) -> None:
        super().__init__(graphs, batch_size)
        self._session = graphs.main
        self._frozen = graphs.graph.batch_size
        model, rows = graphs.model, self._frozen or batch_size
        shape = (rows, model.n_kv_head, round_up(capacity or 1), model.cache_head_size)
        dtype = self._session.dtype("past_key_values.0.key")
        self._past = cache_names("past_key_values", model.n_layer)
        self._present = cache_names("present", model.n_layer)
        self._last, self._all = np.ones(1, np.int64), np.zeros(1, np.int64)  # num_logits_to_keep
        self._plain_until = 0
        self._adopt([np.zeros(shape, dtype) for _ in self._past])

    @property
    def takes_guesses(self) -> bool:
        """See Decoder: a frozen batch takes one token a run."""
        return self._frozen in (None, 1)

    @property
    def capacity(self) -> int:
        """The number of tokens a row that fit before the cache grows."""
        return int(self._caches[0].shape[2])

    def keys_and_values(self) -> Iterator[tuple[Array, Array]]:
        """See Decoder."""
        return without_padding(self._caches, self._lengths, self._graphs.model.head_size)

    def step(self, token: int) -> Array:
        """See Decoder; where nothing grows and nothing is to be said, it touches little."""
        length = int(self._lengths[0])
        if length >= self._plain_until:
            logits = super().step(token)
            self._plain_until = self._plain_length()  # a warning is given once
            return logits
        run = self._one
        run.ids[0, 0], run.positions[0, 0], self._mask[0, length] = token, length, 1
        try:
            run.binding.run()
        except BaseException:
            self._restore(self._lengths)
            raise
        self._lengths[0] = length + 1
        return self._one_row

    def _adopt(self, caches: list[Array]) -> None:
        """Make ``caches`` the cache, and bind it for a step."""
        self._caches = caches
        self._every_row = np.arange(self.batch_size)
        self._reach(int(self._lengths.max()))

    def _reach(self, length: int) -> None:
        """Make the mask long enough for ``length`` tokens, and bind it for a step."""
        self._mask = np.zeros((len(self._caches[0]), round_up(length)), np.int64)
        for row, filled in enumerate(self._lengths):
            self._mask[row, :filled] = 1
        self._row_bindings: dict[int, Binding] = {}
        self._wide: dict[int, _Run] = {}
        self._wide_logits: Array | None = None
        shape = (len(self._mask), 1, self._graphs.model.vocab_size)
        self._one = self._make_run(slice(None), np.zeros(shape, self._session.dtype("logits")), self._last)
        self._one_row: Array = self._one.logits[0, 0]
        self._plain_until = self._plain_length()

    def _plain_length(self) -> int:
        """Return the length below which a step of a single row needs no checks."""
        if self.batch_size > 1 or self._one.logits.dtype != np.float32:
            return 0
        limits = (self._mask.shape[1], self.limit, self.trained_length)
        return min(limit for limit in limits if limit is not None)

    def _make_run(self, rows: slice, logits: Array, keep: Ids) -> _Run:
        """Bind a run that writes ``logits`` (B, S, V)."""
        binding, shape = self._bind(rows), logits.shape[:2]
        run = _Run(
            binding=binding, ids=np.zeros(shape, np.int64), positions=np.zeros(shape, np.int64), logits=logits
        )
        binding.feed_array("input_ids", run.ids)
        binding.feed_array("position_ids", run.positions)
        binding.feed_array("num_logits_to_keep", keep)
        binding.fetch("logits", self._session.share(logits))
        return run

    def _bind(self, rows: slice) -> Binding:
        """Bind mask and cache of some rows, which are one piece of memory."""
        binding = self._session.bind()
        binding.feed_array("attention_mask", self._mask[rows])
        for past, present, cache in zip(self._past, self._present, self._caches, strict=True):
            value = self._session.share(cache[rows])
            binding.feed(past, value)
            binding.fetch(present, value)
        return binding

    def _append(self, new: Sequence[Ids], keep_all: bool) -> Sequence[Array]:
        counts = [ids.size for ids in new]
        self._reserve(max(length + count for length, count in zip(self.lengths, counts, strict=True)))
        if counts.count(1) == len(counts):
            return list(self._step(new[0] if len(new) == 1 else np.concatenate(new)))
        if self._frozen is not None and self._frozen > 1:
            return self._step_by_step(new, keep_all)
        if keep_all and len(counts) == 1 and counts[0] <= WIDE:
            return [self._widely(new[0])]
        return [self._extend(row, ids, keep_all) for row, ids in enumerate(new)]

    def _reserve(self, needed: int) -> None:
        """Make room for ``needed`` tokens in the cache, which grows by copying, and in the mask."""
        if needed > self.capacity:
            capacity, rows = grown(self.capacity, needed), np.arange(len(self._mask))
            self._adopt([copied(cache, rows, self._padded_lengths(), capacity) for cache in self._caches])
        if needed > self._mask.shape[1]:
            self._reach(needed)

    def _padded_lengths(self) -> Ids:
        """Return the lengths with 0 for the dummy rows of a frozen batch."""
        return np.pad(self._lengths, (0, len(self._mask) - self.batch_size))

    def _step(self, tokens: Ids) -> Array:
        """Append one token to each row; return (B, 1, V) that the next step overwrites."""
        live, run = slice(self.batch_size), self._one
        run.ids[live, 0] = tokens
        run.positions[live, 0] = self._lengths
        self._mask[self._every_row, self._lengths] = 1
        run.binding.run()
        self._lengths += 1
        return run.logits[live].astype(np.float32, copy=False)

    def _widely(self, ids: Ids) -> Array:
        """Append a few tokens to the only row; return (S, V) that the next such run overwrites."""
        count, start = ids.size, int(self._lengths[0])
        if self._wide_logits is None:  # memory that is not touched is not taken
            self._wide_logits = np.empty((1, WIDE, self._one.logits.shape[2]), self._one.logits.dtype)
        if count not in self._wide:
            self._wide[count] = self._make_run(slice(None), self._wide_logits[:, :count], self._all)
        run = self._wide[count]
        run.ids[0], run.positions[0] = ids, np.arange(start, start + count)
        self._mask[0, start : start + count] = 1
        run.binding.run()
        self._lengths += count
        logits: Array = run.logits[0]
        return logits.astype(np.float32, copy=False)

    def _step_by_step(self, new: Sequence[Ids], keep_all: bool) -> list[Array]:
        """Append token after token to all rows: all that a frozen batch allows.

        A row without a token left writes to the slot behind its last one, where it does no harm.
        """
        self._reserve(max(length + ids.size for length, ids in zip(self.lengths, new, strict=True)) + 1)
        logits: list[list[Array]] = [[] for _ in new]
        for index in range(max(ids.size for ids in new)):
            active = np.array([index < ids.size for ids in new])
            step = self._step(np.array([ids[index] if index < ids.size else 0 for ids in new]))
            self._truncate(self._lengths - ~active)
            for row in np.flatnonzero(active):
                logits[row].append(step[row].copy())
        return [_joined(parts if keep_all else parts[-1:], self._one.logits.shape[2]) for parts in logits]

    def _extend(self, row: int, ids: Ids, keep_all: bool) -> Array:
        """Append tokens to one row, in blocks; return (S, V), or (1, V) of the last."""
        length, total = int(self._lengths[row]), int(self._lengths[row]) + ids.size
        logits = np.empty(
            (ids.size if keep_all else min(ids.size, 1), self._one.logits.shape[2]), self._one.logits.dtype
        )
        block = self._graphs.block_length(total)
        for start in range(0, ids.size, block):
            part = ids[start : start + block]
            target = logits[start : start + block] if keep_all else logits
            self._run_row(row, part, length + start, target[None], keep_all)
        self._lengths[row] = total
        return logits.astype(np.float32, copy=False)

    def _run_row(self, row: int, ids: Ids, start: int, logits: Array, keep_all: bool) -> None:
        if row not in self._row_bindings:
            self._row_bindings[row] = self._bind(slice(row, row + 1))
        binding = self._row_bindings[row]
        self._mask[row, start : start + ids.size] = 1
        binding.feed_array("input_ids", np.ascontiguousarray(ids)[None])
        binding.feed_array("position_ids", np.arange(start, start + ids.size)[None])
        binding.feed_array("num_logits_to_keep", self._all if keep_all else self._last)
        binding.fetch("logits", self._session.share(logits))
        binding.run()

    def _truncate(self, lengths: Ids) -> None:
        for row, length in enumerate(lengths):
            self._mask[row, length:] = 0
        self._lengths = lengths.copy()

    def _keep_rows(self, indices: Ids) -> None:
        dummies = (0, 0 if self._frozen is None else self._frozen - indices.size)
        rows, lengths = np.pad(indices, dummies), np.pad(self._lengths[indices], dummies)
        held = self._caches[0] if self._caches[0].base is None else self._caches[0].base
        if self._frozen is None and (np.diff(indices) > 0).all() and 2 * indices.size > len(held):
            caches = [moved_up(cache, rows, lengths) for cache in self._caches]
        else:
            caches = [copied(cache, rows, lengths, self.capacity) for cache in self._caches]
        self._lengths = self._lengths[indices]
        self._adopt(caches)


def _joined(parts: list[Array], vocab_size: int) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros((0, vocab_size), np.float32)
