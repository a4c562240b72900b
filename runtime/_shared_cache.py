"""The decoder for GroupQueryAttention: one cache buffer for each layer, written in place.

Past and present are the same memory, (B, K, C, E) with C slots, and the attention mask (B, C) has ones for
the tokens there are and zeros after them. A step of one token a row binds nothing anew: ids, positions,
mask and logits are arrays that change in place. Several tokens at once over a non-empty cache work for one
row only, so each row's prompt is computed alone, in its slice of the batch's cache, without padding.

The buffers are in the CPU's memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._cache import Array, cache_names, copied, grown, round_up, without_padding
from ._checks import Ids
from ._session import Binding
from .decoder import Decoder, Graphs


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
        self._adopt([np.zeros(shape, dtype) for _ in self._past])

    @property
    def capacity(self) -> int:
        """The number of tokens a row that fit before the cache grows."""
        return int(self._caches[0].shape[2])

    def keys_and_values(self) -> list[tuple[Array, Array]]:
        """See Decoder."""
        return without_padding(self._caches, self._lengths, self._graphs.model.head_size)

    def _adopt(self, caches: list[Array]) -> None:
        """Make ``caches`` the cache, with the arrays of a step in their sizes, and bind them."""
        rows, _, capacity, _ = caches[0].shape
        self._caches = caches
        self._ids, self._positions = np.zeros((rows, 1), np.int64), np.zeros((rows, 1), np.int64)
        self._mask = np.zeros((rows, capacity), np.int64)
        for row, length in enumerate(self._lengths):
            self._mask[row, :length] = 1
        logits_shape = (rows, 1, self._graphs.model.vocab_size)
        self._logits = np.zeros(logits_shape, self._session.dtype("logits"))
        self._row_bindings: dict[int, Binding] = {}
        self._step_binding = self._bind(slice(None))
        for name, array in (("input_ids", self._ids), ("position_ids", self._positions)):
            self._step_binding.feed_array(name, array)
        self._step_binding.feed_array("num_logits_to_keep", self._last)
        self._step_binding.fetch("logits", self._session.share(self._logits))

    def _bind(self, rows: slice) -> Binding:
        """Bind mask and cache of some rows, which are one piece of memory."""
        binding = self._session.bind()
        binding.feed_array("attention_mask", self._mask[rows])
        for past, present, cache in zip(self._past, self._present, self._caches, strict=True):
            value = self._session.share(cache[rows])
            binding.feed(past, value)
            binding.fetch(present, value)
        return binding

    def _append(self, new: list[Ids], keep_all: bool) -> list[Array]:
        counts = np.array([ids.size for ids in new])
        self._reserve(int((self._lengths + counts).max()))
        if (counts == 1).all():
            return list(self._step(np.concatenate(new)))
        if self._frozen is not None and self._frozen > 1:
            return self._step_by_step(new, keep_all)
        return [self._extend(row, ids, keep_all) for row, ids in enumerate(new)]

    def _reserve(self, needed: int) -> None:
        if needed <= self.capacity:
            return
        capacity, rows = grown(self.capacity, needed), np.arange(len(self._mask))
        self._adopt([copied(cache, rows, self._padded_lengths(), capacity) for cache in self._caches])

    def _padded_lengths(self) -> Ids:
        """Return the lengths with 0 for the dummy rows of a frozen batch."""
        return np.pad(self._lengths, (0, len(self._mask) - self.batch_size))

    def _step(self, tokens: Ids) -> Array:
        """Append one token to each row; return (B, 1, V)."""
        rows = np.arange(self.batch_size)
        self._ids[rows, 0] = tokens
        self._positions[rows, 0] = self._lengths
        self._mask[rows, self._lengths] = 1
        self._step_binding.run()
        self._lengths += 1
        return self._logits[: self.batch_size].astype(np.float32)

    def _step_by_step(self, new: list[Ids], keep_all: bool) -> list[Array]:
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
                logits[row].append(step[row])
        return [_joined(parts if keep_all else parts[-1:], self._logits.shape[2]) for parts in logits]

    def _extend(self, row: int, ids: Ids, keep_all: bool) -> Array:
        """Append tokens to one row, in blocks; return (S, V), or (1, V) of the last."""
        length, total = int(self._lengths[row]), int(self._lengths[row]) + ids.size
        logits = np.empty(
            (ids.size if keep_all else min(ids.size, 1), self._logits.shape[2]), self._logits.dtype
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
        caches = [copied(cache, rows, lengths, self.capacity) for cache in self._caches]
        self._lengths = self._lengths[indices]
        self._adopt(caches)


def _joined(parts: list[Array], vocab_size: int) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros((0, vocab_size), np.float32)
