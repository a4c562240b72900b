"""A reference that remembers, and that can be asked to measure more carefully what float32 costs.

oracle = Oracle(GptReference(gpt))
oracle.hold(long_sequence)
oracle.truth(long_sequence[:7])                # no new pass
with oracle.careful(): oracle.truth(ids)       # units of several programs; see gpt_onnx.export.gate.nudged
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .cases import Ids
from .reference import Reference, Truth


class Oracle:
    """A reference that remembers: a sequence that begins a longer one is not computed again.

    Only what ``hold`` names is remembered for its prefixes, so that memory stays bounded.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self._held: dict[Ids, Truth] = {}
        self._careful: dict[Ids, Truth] = {}
        """The same with careful units, each computed when it is asked for."""
        self._is_careful = False

    def hold(self, ids: Ids) -> None:
        """Compute a long sequence whose prefixes will be asked for, unless each must run on its own."""
        if self.reference.shares_prefixes and ids not in self._held:
            self._held[ids] = self.reference.compute(ids)

    def truth(self, ids: Ids) -> Truth:
        """Return the truth for a sequence.

        Raises:
            Refused: if the original program does not take it.
        """
        for longer, truth in self._held.items():
            if longer[: len(ids)] == ids:
                return self._with_units(truth).prefix(len(ids))
        return self._compute(ids)

    def _compute(self, ids: Ids) -> Truth:
        if self._is_careful:
            return self.reference.compute_careful(ids)
        return self.reference.compute(ids)

    def _with_units(self, truth: Truth) -> Truth:
        if not self._is_careful:
            return truth
        if truth.ids not in self._careful:
            self._careful[truth.ids] = self._compute(truth.ids)
        return self._careful[truth.ids]

    @contextlib.contextmanager
    def careful(self) -> Iterator[None]:
        """Give careful units for as long as it takes."""
        before, self._is_careful = self._is_careful, True
        try:
            yield
        finally:
            self._is_careful = before
