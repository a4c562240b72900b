"""Which sequences, lengths, batches and chunks a level looks at.

Ids come from a seeded generator, from real text where there is any, and from the edges of the vocabulary, so
that the same bundle meets the same cases everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpt_onnx.bundle import Manifest

Ids = tuple[int, ...]

SEED = 20170612
"""Seed of every random choice of the gate."""
MOST_WORK = 3 * 10**12
"""Parameters times tokens that one case may cost in float64: some three minutes on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How thoroughly a gate looks."""

    lengths: tuple[int, ...]
    """Sequence lengths, beside the context and twice the context."""
    beyond: bool
    """Whether twice the context is computed where positions have no end."""
    batches: tuple[int, ...]
    chunks: tuple[int, ...]
    """Tokens per step of a decoding."""
    decoded: int
    """Length of the sequences that are decoded step by step."""
    greedy: int
    """Tokens of greedy generation."""
    variants: tuple[str, ...] = ()
    """Other ways to run the same graph: names in gpt_onnx.export.gate.variants."""


LEVELS: Mapping[str, Level] = {
    "quick": Level(lengths=(1, 2, 7, 33), beyond=False, batches=(1, 3), chunks=(1, 7), decoded=33, greedy=16),
    "standard": Level(
        lengths=(1, 2, 3, 7, 16, 33, 64, 129),
        beyond=True,
        batches=(1, 3),
        chunks=(1, 2, 3, 7, 16),
        decoded=129,
        greedy=64,
    ),
    "deep": Level(
        lengths=(1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 65, 127, 129, 257),
        beyond=True,
        batches=(1, 2, 3, 8),
        chunks=(1, 2, 3, 7, 16),
        decoded=257,
        greedy=256,
        variants=("one thread", "two threads", "no graph optimisation"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a bundle's graphs can be asked for."""

    vocab_size: int
    layout: str
    """"dynamic", "static" or "plain"."""
    context_length: int | None
    limit: int | None
    """The longest sequence that the graphs take; None where there is no end."""
    position_limit: int | None
    """The longest sequence for which the model has positions; None where there is no end."""
    only_length: int | None
    """The one length that a frozen graph without a cache takes; None where it takes shorter ones too."""
    batch_size: int | None
    """The most rows that frozen graphs take; None for any number."""
    parameters: int = 0
    """What a token costs: one multiplication and one addition each."""

    @classmethod
    def of(cls, manifest: Manifest, *, causal: bool) -> Facts:
        """Read them from a manifest; a frozen graph takes shorter sequences, padded, if it is causal."""
        graph, model = manifest.graph, manifest.model
        limits = [limit for limit in (graph.seq_len, model.position_limit) if limit is not None]
        return cls(
            vocab_size=model.vocab_size,
            layout=graph.layout,
            context_length=model.context_length,
            limit=min(limits, default=None),
            position_limit=model.position_limit,
            only_length=graph.seq_len if graph.layout == "plain" and not causal else None,
            batch_size=graph.batch_size,
            parameters=model.parameters,
        )

    def affordable(self, batch: int = 1) -> int:
        """Return how many tokens of each of some rows are computed in float64 at most."""
        return MOST_WORK // (batch * max(1, self.parameters))

    @property
    def has_cache(self) -> bool:
        """Whether the graphs take and return keys and values."""
        return self.layout != "plain"

    def within(self, length: int) -> int:
        """Return the length, or the longest that the graphs take if that is less."""
        if self.only_length is not None:
            return self.only_length
        return length if self.limit is None else min(length, self.limit)


def lengths_of(level: Level, facts: Facts) -> list[int]:
    """Return the lengths to look at, ascending; some may be beyond what is affordable."""
    if facts.only_length is not None:
        return [facts.only_length]
    wanted = set(level.lengths)
    if facts.context_length is not None:
        wanted |= {facts.context_length, 2 * facts.context_length} if level.beyond else {facts.context_length}
    if facts.limit is not None:
        wanted |= {facts.limit}
    return sorted(length for length in wanted if facts.within(length) == length)


def batches_of(level: Level, facts: Facts) -> list[int]:
    """Return the batch sizes to look at, ascending."""
    return sorted(level.batches) if facts.batch_size is None else sorted({1, facts.batch_size})


def _tile(ids: Iterable[int], length: int) -> Ids:
    source = list(ids)
    return tuple(int(source[index % len(source)]) for index in range(length))


def _random(length: int, vocab_size: int, stream: int) -> Ids:
    drawn = np.random.default_rng((SEED, stream)).integers(0, vocab_size, size=length)
    return tuple(int(token) for token in drawn)


def _edges(length: int, vocab_size: int) -> Ids:
    """Token 0, token V - 1, one token over and over, and random ones between, in turn."""
    head = [0] * 5 + [vocab_size - 1] * 5 + [0, vocab_size - 1] * 3 + [vocab_size // 2] * 8
    return tuple(head[:length]) + _random(max(0, length - len(head)), vocab_size, stream=1)


def sequences_of(
    length: int, vocab_size: int, texts: Sequence[Sequence[int]] | None, count: int
) -> dict[str, Ids]:
    """Return named sequences, at least ``count``: random, real text if any, edges, then more random ones."""
    named = {"random": _random(length, vocab_size, stream=0)}
    joined = [token for text in texts or () for token in text]
    if joined:
        named["text"] = _tile(joined, length)
    named["edges"] = _edges(length, vocab_size)
    for stream in range(2, 2 + max(0, count - len(named))):
        named[f"random {stream}"] = _random(length, vocab_size, stream)
    return named
