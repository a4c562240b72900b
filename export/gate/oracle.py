"""A reference that remembers, and that can be asked to measure more carefully what float32 costs.

oracle = Oracle(GptReference(gpt))
oracle.hold(long_sequence)
oracle.truth(long_sequence[:7])                # no new pass
with oracle.careful(): oracle.truth(ids)       # units of several programs; see gpt_onnx.export.gate.nudged
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .cases import Ids
from .reference import PLAIN, Reference, Units
from .truth import Truth


class TooDear(Exception):  # noqa: N818  # not an error: the first look at the sequence stands
    """A sequence is too long for a model of this size to be measured carefully."""


class Oracle:
    """A reference that remembers: a sequence that begins a longer one is not computed again.

    Only what ``hold`` names is remembered for its prefixes, so that memory stays bounded.

    Args:
        reference: The original program.
        most_careful: The longest sequence that is measured carefully; None: any.
        before: Called before the reference computes, so that others can make room.
    """

    def __init__(
        self,
        reference: Reference,
        most_careful: int | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.reference = reference
        self._most_careful = most_careful
        self._before = before
        self._held: list[tuple[Ids, bool]] = []
        """Sequences, and whether they are held for exact products."""
        self._known: dict[tuple[Ids, Units], Truth] = {}
        """Held sequences, by how they were measured."""
        self._units = PLAIN

    def hold(self, *sequences: Ids) -> None:
        """Compute long sequences whose prefixes will be asked for, unless each must run on its own."""
        if self.reference.shares_prefixes:
            exact = self._units.exact_products
            new = [ids for ids in dict.fromkeys(sequences) if (ids, exact) not in self._held]
            self._held += [(ids, exact) for ids in new]
            self._remember(new)

    def _computed(self, sequences: Sequence[Ids]) -> list[Truth]:
        """Compute sequences in one pass; none where there are none, as a pass reads all weights."""
        if not sequences:
            return []
        if self._before is not None:
            self._before()
        return self.reference.compute_all(sequences, self._units)

    def _remember(self, sequences: Sequence[Ids]) -> None:
        found = self._computed(sequences)
        self._known |= {(ids, self._units): truth for ids, truth in zip(sequences, found, strict=True)}

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
            TooDear: if one is too long to be measured carefully.
        """
        if not all(map(self._affords, sequences)):
            raise TooDear
        longer = [self._longer(ids) for ids in sequences]
        self._remember(
            [ids for ids in dict.fromkeys(longer) if ids and (ids, self._units) not in self._known]
        )
        new = list(dict.fromkeys(ids for ids, held in zip(sequences, longer, strict=True) if held is None))
        fresh = dict(zip(new, self._computed(new), strict=True))
        return [
            fresh[ids] if held is None else self._known[held, self._units].prefix(len(ids))
            for ids, held in zip(sequences, longer, strict=True)
        ]

    def _longer(self, ids: Ids) -> Ids | None:
        """Return the held sequence that begins so; none where it is dearer than the beginning alone."""
        exact = self._units.exact_products
        held = (whole for whole, kind in self._held if kind == exact and whole[: len(ids)] == ids)
        return next(filter(self._affords, held), None)

    def _affords(self, ids: Ids) -> bool:
        return not self._units.careful or self._most_careful is None or len(ids) <= self._most_careful

    def careful(self) -> contextlib.AbstractContextManager[None]:
        """Give careful units for as long as it takes."""
        return self.measured(careful=True)

    @contextlib.contextmanager
    def measured(self, **units: Any) -> Iterator[None]:
        """Measure otherwise for as long as it takes: fields of Units that change."""
        before, self._units = self._units, replace(self._units, **units)
        try:
            yield
        finally:
            self._units = before
