"""A reference that is the source's program with other weights: those that a bundle stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .case import Case
from .cases import Ids
from .reference import PLAIN, Draft, Others, Reference, Units
from .trial import Trial
from .truth import Truth


class RewrittenReference:
    """See the module and Reference.

    Args:
        original: The source's program.
        program: The same with the bundle's weights.
        name: Of this reference.
    """

    padded_vocab_size: int | None = None

    def __init__(self, original: Reference, program: Reference, name: str) -> None:
        self.original, self._program, self.name = original, program, name
        self.is_original = original.is_original
        self.causal, self.shares_prefixes = program.causal, program.shares_prefixes

    @property
    def cost(self) -> str:
        """See Reference."""
        return self._program.cost

    @property
    def dtype(self) -> str:
        """See Reference."""
        return self._program.dtype

    def with_weights(self, others: Others) -> Reference:
        """See Reference."""
        return self._program.with_weights(others)

    def vocabulary(self, length: int) -> int:
        """See Reference."""
        return self._program.vocabulary(length)

    def compute_all(self, sequences: Sequence[Ids], units: Units = PLAIN) -> list[Truth]:
        """See Reference."""
        return self._program.compute_all(sequences, units)

    def greedy(self, prompt: Ids, count: int, draft: Draft | None = None) -> Ids:
        """See Reference."""
        return self._program.greedy(prompt, count, draft)

    def own_cases(self, trial: Trial) -> Iterable[Case]:
        """See Reference."""
        raise NotImplementedError
