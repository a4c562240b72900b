"""The decoder for two graphs of frozen dims: a prefill of N tokens and a step of one token over N slots.

Every run has the graph's B rows and N slots; rows that a batch has not are dummies. The prefill starts
empty rows, padded on the right; all other tokens go one by one. A row that has no token in a step still
computes: it writes to the slot behind its last one, where it does no harm, and a full row repeats its last
token in its own slot.

With GroupQueryAttention past and present are one buffer; otherwise two sets of buffers take turns. A prefill
is one run that Ctrl-C cannot interrupt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._cache import Array, cache_names, without_padding
from ._checks import Ids
from ._session import Binding
from .decoder import Decoder, Graphs


class StaticCacheDecoder(Decoder):
    """See the module; ``capacity`` is not used, for the slots are frozen."""

    def __init__(self, graphs: Graphs, batch_size: int, capacity: int | None = None) -> None:
        super().__init__(graphs, batch_size)
        assert graphs.graph.seq_len is not None
        self._slots = graphs.graph.seq_len
        self._in_place = graphs.graph.attention == "gqa"
        self._prefill_session, self._session = graphs.sessions["prefill"], graphs.sessions["decode"]
        self._past_names = cache_names("past_key_values", graphs.model.n_layer)
        self._present_names = cache_names("present", graphs.model.n_layer)
        self._make_arrays(graphs.graph.batch_size or batch_size)
        self._adopt(self._empty_caches())

    def _make_arrays(self, rows: int) -> None:
        """Make what a step reads and writes, for B rows."""
        self._rows = rows
        self._ids, self._positions = np.zeros((rows, 1), np.int64), np.zeros((rows, 1), np.int64)
        self._mask = np.zeros((rows, self._slots), np.int64)
        self._newest = np.zeros(rows, np.int64)  # each row's last token
        self._logits = np.zeros((rows, 1, self._graphs.model.vocab_size), self._session.dtype("logits"))

    def _empty_caches(self) -> list[Array]:
        model = self._graphs.model
        shape = (self._rows, model.n_kv_head, self._slots, model.cache_head_size)
        return [np.zeros(shape, self._session.dtype(self._past_names[0])) for _ in self._past_names]

    def _adopt(self, caches: list[Array]) -> None:
        """Make ``caches`` the cache: bind a step from it into the other set of buffers, and one back."""
        now = [self._session.upload(cache) for cache in caches]
        other = now if self._in_place else [self._session.upload(cache) for cache in self._empty_caches()]
        self._turns = [(now, self._bind(now, other)), (other, self._bind(other, now))]

    def _bind(self, past: list[Any], present: list[Any]) -> Binding:
        binding = self._session.bind()
        for name, value in zip(self._past_names, past, strict=True):
            binding.feed(name, value)
        for name, value in zip(self._present_names, present, strict=True):
            binding.fetch(name, value)
        binding.fetch("logits", self._session.share(self._logits))
        return binding

    @property
    def _caches(self) -> list[Array]:
        """Copies of the cache, (B, K, N, E)."""
        return [np.array(value.numpy()) for value in self._turns[0][0]]

    def keys_and_values(self) -> Iterator[tuple[Array, Array]]:
        """See Decoder."""
        return without_padding(self._caches, self._lengths, self._graphs.model.head_size)

    def _append(self, new: Sequence[Ids], keep_all: bool) -> list[Array]:
        logits: list[list[Array]] = [[] for _ in new]
        left = list(new)
        if any(length == 0 and ids.size > 1 for length, ids in zip(self.lengths, new, strict=True)):
            left = self._prefill(new, logits, keep_all)
        for index in range(max(ids.size for ids in left)):
            active = np.array([index < ids.size for ids in left])
            step = self._step(np.array([ids[index] if index < ids.size else 0 for ids in left]), active)
            for row in np.flatnonzero(active):
                logits[row] = [*logits[row], step[row]] if keep_all else [step[row]]
        empty = np.zeros((0, self._logits.shape[2]), np.float32)
        return [np.concatenate(parts) if parts else empty for parts in logits]

    def _prefill(self, new: Sequence[Ids], logits: list[list[Array]], keep_all: bool) -> list[Ids]:
        """Start the empty rows; return the tokens that are left for steps, and add to ``logits``."""
        fresh = [row for row, ids in enumerate(new) if self._lengths[row] == 0 and ids.size]
        computed, caches = self._run_prefill({row: new[row] for row in fresh})
        if self._lengths.any():
            for cache, kept in zip(caches, self._caches, strict=True):
                others = np.setdiff1d(np.arange(self._rows), fresh)
                cache[others] = kept[others]
        self._adopt(caches)
        for row in fresh:
            count = new[row].size
            self._lengths[row], self._newest[row] = count, new[row][-1]
            logits[row].append(computed[row, 0 if keep_all else count - 1 : count].astype(np.float32))
        return [ids[:0] if row in fresh else ids for row, ids in enumerate(new)]

    def _run_prefill(self, rows: dict[int, Ids]) -> tuple[Array, list[Array]]:
        """Compute prompts from the first slot on; return logits (B, N, V) and the caches."""
        ids, mask = (
            np.zeros((self._rows, self._slots), np.int64),
            np.zeros((self._rows, self._slots), np.int64),
        )
        for row, tokens in rows.items():
            ids[row, : tokens.size], mask[row, : tokens.size] = tokens, 1
        positions = np.ascontiguousarray(np.broadcast_to(np.arange(self._slots), ids.shape))
        session = self._prefill_session
        logits = np.empty((self._rows, self._slots, self._logits.shape[2]), session.dtype("logits"))
        binding = session.bind()
        for name, array in (("input_ids", ids), ("attention_mask", mask), ("position_ids", positions)):
            binding.feed_array(name, array)
        binding.fetch("logits", session.share(logits))
        caches = self._empty_caches()
        for name, cache in zip(self._present_names, caches, strict=True):
            binding.fetch(name, session.share(cache))
        binding.run()
        return logits, caches

    def _step(self, tokens: Ids, active: Array) -> Array:
        """Append one token to each active row; return (B, 1, V)."""
        live = slice(self.batch_size)
        full = self._lengths == self._slots
        slots = np.zeros(self._rows, np.int64)
        slots[live] = np.minimum(self._lengths, self._slots - 1)
        self._ids[live, 0] = np.where(full, self._newest[live], tokens)
        self._positions[:, 0] = slots
        np.less_equal(np.arange(self._slots), slots[:, None], out=self._mask, casting="unsafe")
        binding = self._turns[0][1]
        for name, array in (
            ("input_ids", self._ids),
            ("attention_mask", self._mask),
            ("position_ids", self._positions),
        ):
            binding.feed_array(name, array)
        binding.run()
        self._turns.reverse()
        self._newest[live] = np.where(active, tokens, self._newest[live])
        self._lengths += active
        return self._logits[live].astype(np.float32)

    def _truncate(self, lengths: Ids) -> None:
        self._lengths = lengths.copy()

    def _keep_rows(self, indices: Ids) -> None:
        frozen = self._graphs.graph.batch_size
        rows = np.pad(indices, (0, 0 if frozen is None else frozen - indices.size))
        caches = [cache[rows] for cache in self._caches]
        lengths, newest = self._lengths[indices], self._newest[rows]
        self._make_arrays(rows.size)
        self._lengths, self._newest = lengths, newest
        self._adopt(caches)
