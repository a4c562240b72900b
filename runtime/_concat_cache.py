"""The decoder for decomposed attention: a run returns past and new keys in one tensor, the next run's past.

The tensors stay on the device as OrtValues and are never copied through numpy on the way. New tokens of
unequal number are padded on the left, so that each row's last token is the last column; the attention mask
knows the holes, and positions count a row's own tokens. A row that is rewound has holes too. Holes are
squeezed out when rows are dropped, or when they become most of the cache.

Shapes: B rows of the graph (dummy rows of a frozen batch included), P cached columns, S new columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ._cache import Array, cache_names, without_padding
from ._checks import Ids
from .decoder import Decoder, Graphs

SPARE_COLUMNS = 64
"""Holes that are tolerated whatever the rows' lengths."""


def columns_of(mask: Array, row: int) -> Ids:
    """Return the cache's columns that hold a row's tokens, in their order."""
    return np.flatnonzero(mask[row])


def left_padded(new: Sequence[Ids], rows: int, lengths: Ids) -> tuple[Ids, Ids, Ids]:
    """Return ids, mask and positions, each (B, S), of unequal numbers of tokens behind ``lengths``."""
    width = max(ids.size for ids in new)
    ids, mask, positions = (np.zeros((rows, width), np.int64) for _ in range(3))
    for row, (tokens, length) in enumerate(zip(new, lengths, strict=True)):
        start = width - tokens.size
        ids[row, start:], mask[row, start:] = tokens, 1
        positions[row, start:] = np.arange(length, length + tokens.size)
    return ids, mask, positions


class ConcatCacheDecoder(Decoder):
    """See the module; ``capacity`` is not used, for the graph itself makes room."""

    def __init__(self, graphs: Graphs, batch_size: int, capacity: int | None = None) -> None:
        super().__init__(graphs, batch_size)
        self._session = graphs.main
        self._rows = graphs.graph.batch_size or batch_size
        self._past_names = cache_names("past_key_values", graphs.model.n_layer)
        self._present_names = cache_names("present", graphs.model.n_layer)
        self._last, self._all = np.ones(1, np.int64), np.zeros(1, np.int64)  # num_logits_to_keep
        self._binding = self._session.bind()
        self._upload(
            [np.zeros(self._shape(0), self._session.dtype(self._past_names[0])) for _ in self._past_names]
        )
        self._mask = np.zeros((self._rows, 0), np.int64)

    @property
    def takes_guesses(self) -> bool:
        """See Decoder."""
        return True

    def keys_and_values(self) -> Iterator[tuple[Array, Array]]:
        """See Decoder."""
        caches = self._squeezed(np.arange(self.batch_size), self._lengths)
        return without_padding(caches, self._lengths, self._graphs.model.head_size)

    def _shape(self, length: int) -> tuple[int, int, int, int]:
        model = self._graphs.model
        return self._rows, model.n_kv_head, length, model.cache_head_size

    def _upload(self, caches: list[Array]) -> None:
        self._past: list[Any] = [self._session.upload(cache) for cache in caches]

    def _append(self, new: Sequence[Ids], keep_all: bool) -> list[Array]:
        counts = np.array([ids.size for ids in new])
        longest = int((self._lengths + counts).max())
        if self._mask.shape[1] > 2 * longest + SPARE_COLUMNS:
            self._repack(np.arange(self.batch_size), self._lengths)
        ids, mask, positions = left_padded(new, self._rows, self._lengths)
        width, block = ids.shape[1], self._graphs.block_length(longest)
        parts: list[Array] = []
        for start in range(0, width, block):
            cut = np.s_[:, start : start + block]
            logits = self._run(ids[cut], mask[cut], positions[cut], keep_all)
            parts = [*parts, logits] if keep_all else [logits]
        self._lengths = self._lengths + counts
        wanted = counts if keep_all else np.minimum(counts, 1)
        return [_last_of(parts, row, int(count)) for row, count in enumerate(wanted)]

    def _run(self, ids: Ids, mask: Ids, positions: Ids, keep_all: bool) -> Array:
        """Append columns; return logits, (B, S, V) or (B, 1, V) of the last column."""
        whole_mask = np.concatenate([self._mask, mask], axis=1)
        shape = (self._rows, ids.shape[1] if keep_all else 1, self._graphs.model.vocab_size)
        logits = np.empty(shape, self._session.dtype("logits"))
        binding = self._binding
        binding.feed_array("input_ids", np.ascontiguousarray(ids))
        binding.feed_array("attention_mask", whole_mask)
        binding.feed_array("position_ids", np.ascontiguousarray(positions))
        binding.feed_array("num_logits_to_keep", self._all if keep_all else self._last)
        binding.fetch("logits", self._session.share(logits))
        for name, past in zip(self._past_names, self._past, strict=True):
            binding.feed(name, past)
        for name in self._present_names:
            binding.fetch_new(name)
        binding.run()
        self._past, self._mask = binding.outputs()[1:], whole_mask
        return logits

    def _squeezed(self, rows: Ids, lengths: Ids) -> list[Array]:
        """Return caches (B, K, T, E) of some rows without their holes, each row from the first column on."""
        columns = [columns_of(self._mask, row)[:length] for row, length in zip(rows, lengths, strict=True)]
        squeezed = []
        for value in self._past:
            cache = value.numpy()
            new = np.zeros(
                (self._rows, cache.shape[1], int(lengths.max(initial=0)), cache.shape[3]), cache.dtype
            )
            for index, (row, chosen) in enumerate(zip(rows, columns, strict=True)):
                new[index, :, : chosen.size] = cache[row][:, chosen]
            squeezed.append(new)
        return squeezed

    def _repack(self, rows: Ids, lengths: Ids) -> None:
        """Make the cache that of some rows, cut to the given lengths, without holes inside."""
        caches = self._squeezed(rows, lengths)
        self._upload(caches)
        self._mask = np.zeros((self._rows, caches[0].shape[2]), np.int64)
        for row, length in enumerate(lengths):
            self._mask[row, :length] = 1
        self._lengths = lengths.copy()

    def _truncate(self, lengths: Ids) -> None:
        """Leave holes where tokens were: their keys and values are finite, and the mask hides them."""
        for row in np.flatnonzero(lengths < self._lengths).tolist():
            self._mask[row, columns_of(self._mask, row)[lengths[row] :]] = 0
        self._lengths = lengths.copy()

    def _restore(self, lengths: Ids) -> None:
        """Squeeze out what a failed run may have added, and whatever it held."""
        if self._mask.sum() != lengths.sum() or self._past[0].shape()[2] != self._mask.shape[1]:
            self._repack(np.arange(self.batch_size), lengths)
        self._lengths = lengths.copy()

    def _keep_rows(self, indices: Ids) -> None:
        if self._graphs.graph.batch_size is None:
            self._rows = indices.size
        self._repack(indices, self._lengths[indices])


def _last_of(parts: list[Array], row: int, count: int) -> Array:
    """Return float32 copies (count, V) of the last logits of a row, which run through all parts."""
    width = sum(part.shape[1] for part in parts)
    joined, skipped = [], width - count
    for part in parts:
        joined.append(part[row, min(skipped, part.shape[1]) :])
        skipped = max(skipped - part.shape[1], 0)
    return np.concatenate(joined).astype(np.float32)
