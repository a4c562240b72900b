"""What is true of one sequence: float64 logits, keys and values, and what float32 costs there.

A Truth answers for any of its positions, so one pass over a long sequence serves all of its prefixes where
the program is known to be causal (gpt_onnx.export.gate.oracle).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .cases import Ids
from .tolerance import AnyFloats, FloatArray, Ratio, RowErrors, Unit, ratio_of, ratio_of_blocks, worst

BLOCK = 256  # rows of logits that exist in float64 at once

Head = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTruth:
    """Keys or values of one layer: (S, K, D), positions first."""

    r64: FloatArray
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
        blocks = (
            (found[low - start : low - start + BLOCK], self.logits(slice(low, min(low + BLOCK, stop))))
            for low in range(start, stop, BLOCK)
        )
        return ratio_of_blocks(blocks, self.unit(slice(start, stop)))

    def cache_ratio(self, layers: Sequence[tuple[AnyFloats, AnyFloats]], row: int) -> Ratio:
        """Compare one row of all keys and values that a decoder returned, each by its own unit."""
        found = [part[row] for pair in layers for part in pair]
        if len(found) != len(self.caches):
            raise ValueError(
                f"the decoder has {len(found)} keys and values; {len(self.caches)} were expected."
            )
        return worst(
            cache.ratio(part[:, : len(self.ids)]) for cache, part in zip(self.caches, found, strict=True)
        )

    def with_largest_errors(self, other: Truth) -> Truth:
        """Return the same, each unit the larger of its own and that of a program beside this one."""
        caches = tuple(
            replace(cache, errors=RowErrors.largest([cache.errors, beside.errors]))
            for cache, beside in zip(self.caches, other.caches, strict=True)
        )
        return replace(self, errors=RowErrors.largest([self.errors, other.errors]), caches=caches)

    def prefix(self, length: int) -> Truth:
        """Return the same for the first tokens alone: exact for a causal program."""
        caches = tuple(replace(c, r64=c.r64[:length], errors=c.errors.prefix(length)) for c in self.caches)
        return replace(
            self,
            ids=self.ids[:length],
            hidden=self.hidden[:length],
            errors=self.errors.prefix(length),
            caches=caches,
        )
