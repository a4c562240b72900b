"""The decoder for graphs without a cache: every step computes the whole sequence again.

Rows of equal length are computed together and nothing is padded, so that any module is served. Where the
graph's length is frozen, sequences are padded on the right, which a causal model does not see; where its
batch is frozen, rows are repeated. The cost of n tokens grows with n squared, or cubed where attention
dominates, and a run cannot be interrupted by Ctrl-C.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError, InputError

from ._checks import Ids
from .decoder import Decoder, Graphs

Array = NDArray[Any]


class RecomputeDecoder(Decoder):
    """See the module; ``capacity`` is not used, for there is no cache."""

    def __init__(self, graphs: Graphs, batch_size: int, capacity: int | None = None) -> None:
        super().__init__(graphs, batch_size)
        self._session = graphs.main
        self._tokens: list[Ids] = [np.zeros(0, np.int64) for _ in range(batch_size)]

    def keys_and_values(self) -> Iterator[tuple[Array, Array]]:
        """Yield nothing: there is no cache."""
        return iter(())

    def _append(self, new: Sequence[Ids], keep_all: bool) -> list[Array]:
        whole = [np.concatenate(pair) for pair in zip(self._tokens, new, strict=True)]
        logits = self._compute(
            [ids if added.size else ids[:0] for ids, added in zip(whole, new, strict=True)]
        )
        self._tokens, self._lengths = whole, np.array([ids.size for ids in whole])
        kept = [ids.size if keep_all else min(ids.size, 1) for ids in new]
        return [_tail(row, count) for row, count in zip(logits, kept, strict=True)]

    def _compute(self, rows: list[Ids]) -> list[Array]:
        """Return for each row logits (S, V), or (1, V) where the graph returns the last position only."""
        frozen = self._graphs.graph.batch_size
        by_length: dict[int, list[int]] = defaultdict(list)
        for index, ids in enumerate(rows):
            by_length[ids.size].append(index)
        logits = [np.zeros((0, self._graphs.model.vocab_size), np.float32)] * len(rows)
        for length, indices in by_length.items():
            for start in range(0, len(indices) if length else 0, frozen or len(indices)):
                together = indices[start : start + (frozen or len(indices))]
                for index, values in zip(together, self._run([rows[i] for i in together]), strict=False):
                    logits[index] = values
        return logits

    def _run(self, rows: list[Ids]) -> Array:
        """Compute rows of one length S; return (B, S, V), or (B, 1, V) of the last position."""
        length, graph = rows[0].size, self._graphs.graph
        batch = np.stack([*rows, *[rows[0]] * ((graph.batch_size or len(rows)) - len(rows))])
        padded = np.pad(batch, ((0, 0), (0, (graph.seq_len or length) - length)))
        binding = self._session.bind()
        binding.feed_array("input_ids", padded.astype(self._session.dtype("input_ids"), copy=False))
        binding.fetch_new("logits")
        binding.run()
        logits: Array = binding.outputs()[0].numpy()
        if logits.ndim == 2:
            logits = logits[:, None]
        size = self._graphs.model.vocab_size
        if logits.ndim != 3 or logits.shape[-1] != size:
            raise BundleError(
                f"{self._session.path} returned logits of shape {logits.shape}; expected (B, S, {size})."
            )
        if logits.shape[1] == padded.shape[1]:
            return logits[:, :length]
        return self._last_only(logits, length)

    def _last_only(self, logits: Array, length: int) -> Array:
        if self._graphs.graph.seq_len not in (None, length):
            raise InputError(
                f"the graph returns the last of {self._graphs.graph.seq_len} positions alone, and the "
                f"sequence has {length} tokens; export it with --seq-len dynamic."
            )
        return logits

    def _truncate(self, lengths: Ids) -> None:
        self._tokens = [ids[:length] for ids, length in zip(self._tokens, lengths, strict=True)]
        self._lengths = lengths.copy()

    def _keep_rows(self, indices: Ids) -> None:
        self._tokens = [self._tokens[index] for index in indices]
        self._lengths = self._lengths[indices]


def _tail(logits: Array, count: int) -> Array:
    """Return float32 copies of the last ``count`` logits of a row."""
    if count > len(logits):
        raise InputError(
            "the graph returns the logits of the last position only; take them with "
            "decoder(batch_size).append(rows), or generate."
        )
    return logits[len(logits) - count :].astype(np.float32)
