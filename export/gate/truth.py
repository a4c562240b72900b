"""What is true of one sequence: float64 logits, keys and values, and what float32 costs there.

A Truth answers for any of its positions, so one pass over a long sequence serves all of its prefixes where
the program is known to be causal (gpt_onnx.export.gate.oracle).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from .cases import Ids
from .shelf import Rows
from .tolerance import AnyFloats, FloatArray, Ratio, RowErrors, Unit, ratio_of, ratio_of_blocks, worst

NUMBERS = 2**22
"""Logits that exist in float64 at once: 32 MB."""

Head = Callable[[FloatArray], FloatArray]


def rows_at_once(width: int) -> int:
    """Return how many rows of so many logits are worked on together."""
    return max(1, NUMBERS // max(width, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTruth:
    """Keys or values of one layer: (S, K, D), positions first; those of a beginning are the first of them."""

    r64: Rows
    errors: RowErrors

    def ratio(self, found: AnyFloats) -> Ratio:
        """Compare (K, S, D) as the graph gives them, or the first positions of them."""
        length = found.shape[1]
        return ratio_of(found.swapaxes(0, 1), self.r64[:length], self.errors.unit(slice(length)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the reference computes for one sequence."""

    ids: Ids
    first: int
    """Position of the first row of logits: 0, or the last position where only that one is computed."""
    hidden: FloatArray
    """What ``head`` turns into logits, one row a position."""
    head: Head
    errors: RowErrors
    """Of the logits, one row a position from ``first``."""
    caches: tuple[CacheTruth, ...] = ()
    """Keys and values of each layer in turn; empty for programs without a cache."""

    def _rows(self, positions: slice | Sequence[int]) -> slice | list[int]:
        if isinstance(positions, slice):
            start, stop, _ = positions.indices(len(self.ids))
            return slice(start - self.first, stop - self.first)
        return [position - self.first for position in positions]

    def logits(self, positions: slice | Sequence[int] = slice(None)) -> FloatArray:
        """Return float64 logits (n, V) at some positions."""
        return self.head(self.hidden[self._rows(positions)])

    def unit(self, positions: slice | Sequence[int] = slice(None)) -> Unit:
        """Return what float32 costs there."""
        return self.errors.unit(self._rows(positions))

    def ratio(self, found: AnyFloats, start: int | None = None) -> Ratio:
        """Compare logits (n, V) of the positions from ``start`` (default: the first that has logits)."""
        start = self.first if start is None else start
        stop = start + len(found)
        rows = rows_at_once(found.shape[-1])
        blocks = (
            (found[low - start : low - start + rows], self.logits(slice(low, min(low + rows, stop))))
            for low in range(start, stop, rows)
        )
        return ratio_of_blocks(blocks, self.unit(slice(start, stop)))

    def with_largest_errors(self, other: Truth) -> Truth:
        """Return the same, each unit the larger of its own and that of a program beside this one."""
        caches = tuple(
            replace(cache, errors=RowErrors.largest([cache.errors, beside.errors]))
            for cache, beside in zip(self.caches, other.caches, strict=True)
        )
        return replace(self, errors=RowErrors.largest([self.errors, other.errors]), caches=caches)

    def prefix(self, length: int) -> Truth:
        """Return the same for the first tokens alone: exact for a causal program."""
        return replace(
            self,
            ids=self.ids[:length],
            hidden=self.hidden[:length],
            errors=self.errors.prefix(length),
        )


def cache_ratio(truths: Sequence[Truth], layers: Iterable[tuple[AnyFloats, AnyFloats]]) -> Ratio:
    """Compare all keys and values that a decoder yields, each row by its own truth and each by its own unit.

    Args:
        truths: One a row.
        layers: Keys and values (B, K, S, D) of each layer in turn; one layer at a time is in memory.
    """
    ratios: list[Ratio] = []
    expected = zip(*(truth.caches for truth in truths), strict=True)
    for parts, theirs in zip(chain.from_iterable(layers), expected, strict=True):
        ratios += [
            cache.ratio(part[:, : len(truth.ids)])
            for truth, cache, part in zip(truths, theirs, parts, strict=True)
        ]
    return worst(ratios)
