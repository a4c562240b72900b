"""A module whose weights were put into our GPT, as the reference: its logits, and our GPT's keys and values.

    MappedReference(ModuleReference(module), GptReference(gpt))

Logits are those of the user's own module in float64, in units of what float32 costs it. It has no cache that
we know, so keys and values are those of our GPT with the same weights. Where it gives the logits of the last
position alone, those of the positions before are our GPT's; each is the last of a shorter sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from .case import SHORT, Case, Finding, Setting
from .cases import Ids
from .foreign import ModuleReference
from .original import BesideItsNumbers
from .ours import GptReference
from .reference import FLOAT32, PLAIN, Draft, Others, Reference, Units
from .tolerance import FloatArray, RowErrors, worst
from .truth import Truth


def _as_they_are(rows: FloatArray) -> FloatArray:
    return rows


def joined(theirs: Truth, ours: Truth) -> Truth:
    """Return the module's logits with our keys and values.

    Args:
        theirs: Of the module: logits of all positions, or of the last alone.
        ours: Of our GPT, on the same ids.
    """
    if not theirs.first:
        return replace(theirs, caches=ours.caches)
    before = ours.logits(slice(theirs.first))
    errors = RowErrors.join([ours.errors.prefix(theirs.first), theirs.errors])
    logits = np.concatenate([before, theirs.logits()])
    return replace(theirs, first=0, hidden=logits, head=_as_they_are, errors=errors, caches=ours.caches)


class MappedReference(BesideItsNumbers):
    """See the module.

    Args:
        module: The user's.
        gpt: Ours, with the same weights.
    """

    cost = FLOAT32
    is_original = True
    padded_vocab_size: int | None = None
    causal = True  # as the graph is; a module that is not differs from it
    shares_prefixes = False

    def __init__(self, module: ModuleReference, gpt: GptReference) -> None:
        self.module, self.gpt = module, gpt
        self.name = module.name

    @property
    def dtype(self) -> str:
        """See Reference."""
        return self.module.dtype

    def with_weights(self, others: Others) -> GptReference:
        """See Reference: our GPT's, as they are its names; ``check_module`` says that it is the module's."""
        return self.gpt.with_weights(others)

    def vocabulary(self, length: int) -> int:
        """See Reference."""
        return self.module.vocabulary(length)

    def compute_all(self, sequences: Sequence[Ids], units: Units = PLAIN) -> list[Truth]:
        """See Reference."""
        theirs = self.module.compute_all(sequences, units)
        ours = self.gpt.compute_all(sequences, units)
        return [joined(their, our) for their, our in zip(theirs, ours, strict=True)]

    def greedy(self, prompt: Ids, count: int, draft: Draft | None = None) -> Ids:
        """See Reference."""
        return self.module.greedy(prompt, count, draft)


def check_module(reference: MappedReference, sequences: Sequence[Ids]) -> Finding:
    """See that our GPT with the module's weights computes what the module does."""
    theirs, ours = reference.compute_all(sequences), reference.gpt.compute_all(sequences)
    return Finding(ratio=worst(their.ratio(our.logits()) for their, our in zip(theirs, ours, strict=True)))


def reading_cases(original: Reference, setting: Setting) -> Iterator[Case]:
    """Where our program has the weights of another, see that it computes what that one does."""
    if isinstance(original, MappedReference):
        rows = [row[: setting.facts.within(SHORT)] for row in setting.rows(setting.batches[-1])]
        name = f"{original.name} beside our GPT with its weights"
        yield Case(group="original", name=name, run=partial(check_module, original, rows))
