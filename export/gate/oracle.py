"""A reference that remembers, and that can be asked to measure more carefully what float32 costs.

oracle = Oracle(GptReference(gpt))
oracle.hold(long_sequence)
oracle.truth(long_sequence[:7])                # no new pass
with oracle.careful(16): oracle.truth(ids)     # units of several programs; see gpt_onnx.export.gate.nudged
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from .cases import Ids
from .reference import PLAIN, Reference, Units
from .truth import Truth


class Oracle:
    """A reference that remembers: a sequence that begins a longer one is not computed again.

    Only what ``hold`` names is remembered for its prefixes, so that memory stays bounded.

    Args:
        reference: The original program.
        most_beside: The most tokens of one sequence that all programs beside compute, unless there is only
            one; None: any number.
        before: Called before the reference computes, so that others can make room.
    """

    def __init__(
        self,
        reference: Reference,
        most_beside: int | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.reference = reference
        self._most_beside = most_beside
        self._before = before
        self._held: list[tuple[Ids, bool]] = []
        """Sequences, and whether they are held for exact products."""
        self._known: dict[tuple[Ids, Units], Truth] = {}
        """Held sequences, by how they were measured."""
        self._units = PLAIN
        self._beside = 0

    def hold(self, *sequences: Ids) -> None:
        """Compute long sequences whose prefixes will be asked for, unless each must run on its own."""
        if self.reference.shares_prefixes:
            exact = self._units.exact_products
            new = [ids for ids in dict.fromkeys(sequences) if (ids, exact) not in self._held]
            self._held += [(ids, exact) for ids in new]
            self._remember(new)

    def _computed(self, sequences: Iterable[Ids]) -> Iterator[tuple[Ids, Truth]]:
        """Compute sequences, those that are measured alike in one pass, as a pass reads all weights."""
        by_programs = sorted(sequences, key=self._programs)
        if by_programs and self._before is not None:
            self._before()
        for _, alike in groupby(by_programs, self._programs):
            group = list(alike)
            yield from zip(group, self.reference.compute_all(group, self._measure(group[0])), strict=True)

    def _remember(self, sequences: Iterable[Ids]) -> None:
        new = [ids for ids in sequences if (ids, self._measure(ids)) not in self._known]
        self._known |= {(ids, self._measure(ids)): truth for ids, truth in self._computed(new)}

    def truth(self, ids: Ids) -> Truth:
        """Return the truth for a sequence.

        Raises:
            Refused: if the original program does not take it.
        """
        return self.truths([ids])[0]

    def truths(self, sequences: Sequence[Ids]) -> list[Truth]:
        """Return the truth for each sequence; those that are not known are computed together.

        Raises:
            Refused: if the original program does not take one.
        """
        longer = {ids: self._longer(ids) for ids in sequences}
        self._remember(dict.fromkeys(whole for whole in longer.values() if whole))
        found = dict(self._computed([ids for ids, whole in longer.items() if whole is None]))
        for ids, whole in longer.items():
            if whole is not None:
                found[ids] = self._known[whole, self._measure(whole)].prefix(len(ids))
        return [found[ids] for ids in sequences]

    def _longer(self, ids: Ids) -> Ids | None:
        """Return the held sequence that begins so and is measured as carefully."""
        exact = self._units.exact_products
        held = (whole for whole, kind in self._held if kind == exact and whole[: len(ids)] == ids)
        return next((whole for whole in held if self._programs(whole) == self._programs(ids)), None)

    def _programs(self, ids: Ids) -> int:
        """Return how many programs beside the original one measure a sequence."""
        if self._beside <= 1 or self._most_beside is None:
            return self._beside
        return max(1, min(self._beside, self._most_beside // len(ids)))

    def _measure(self, ids: Ids) -> Units:
        return replace(self._units, beside=self._programs(ids))

    @contextlib.contextmanager
    def careful(self, beside: int) -> Iterator[None]:
        """Give units of up to so many programs beside the original one, too, for as long as it takes."""
        before, self._beside = self._beside, beside
        try:
            yield
        finally:
            self._beside = before

    @contextlib.contextmanager
    def measured(self, **units: Any) -> Iterator[None]:
        """Measure otherwise for as long as it takes: fields of Units that change."""
        before, self._units = self._units, replace(self._units, **units)
        try:
            yield
        finally:
            self._units = before
