"""One case of the gate: what it is called, how it runs, what it found.

    Case(group="lengths", name="7 tokens, batch 3", run=lambda: Finding(ratio=...))

``Setting`` is what the cases of a gate share, ``Engine`` the part of gpt_onnx.runtime that they drive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpt_onnx.runtime import Generation, Sampling

from .cases import Facts, Ids, Level, batches_of, lengths_of, sequences_of
from .oracle import Oracle
from .reference import Refused
from .tolerance import Ratio

Logits = npt.NDArray[np.float32]
MARGIN = 25.0
"""How far beyond its bound a case may be for a second look, as a multiple of the bound."""
EXACT_PRODUCTS = "exact products"
"""Group of the cases that are held to what float32 alone costs, whatever the bundle rounds."""
SHORT = 35  # tokens of the cases that do not ask the level for a length


class Skipped(Exception):  # noqa: N818  # not an error: the report lists what was left out, and why
    """A case is left out."""


class StepDecoder(Protocol):
    """gpt_onnx.runtime's Decoder, as far as the gate drives it."""

    def append(self, rows: Sequence[Sequence[int]], keep: str = "last") -> list[Logits]:
        """Append tokens to each row and return each row's logits: (V,), or (S_i, V) for keep="all"."""
        ...

    def rewind(self, lengths: Sequence[int]) -> None:
        """Forget the tokens of each row from its length on."""
        ...

    def keep_rows(self, indices: Sequence[int]) -> None:
        """Keep some rows, in that order."""
        ...

    def keys_and_values(self) -> Iterable[tuple[Logits, Logits]]:
        """Yield the keys and values of each layer, (B, K, longest row, head_size)."""
        ...


class Engine(Protocol):
    """gpt_onnx.runtime's OnnxGPT, as far as the gate drives it."""

    def logits(self, input_ids: Any, attention_mask: Any = None) -> Logits:
        """Return logits (B, S, V), or (B, 1, V) where the graph gives the last position alone."""
        ...

    def decoder(self, batch_size: int = 1, capacity: int | None = None) -> StepDecoder:
        """Return an empty cache to append to."""
        ...

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling,
        *,
        ignore_eos: bool = False,
    ) -> Sequence[Generation]:
        """Return the new tokens of each prompt."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a case found."""

    ratio: Ratio | None = None
    """The error in units; None where the case compares no numbers."""
    fault: str | None = None
    """What is wrong beside the numbers; None where nothing is."""
    beside: int = 0
    """Programs beside the original one that a second look took at most; see gpt_onnx.export.gate.nudged."""
    near_ties: int = 0
    """Tokens where float64 prefers another by less than the tolerance."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return self.fault is None and (self.ratio is None or self.ratio.passed)

    @property
    def marginal(self) -> bool:
        """Whether it failed by little, or by a token that the tolerance decides: worth a second look."""
        if self.passed or self.ratio is None:
            return self.fault is not None
        return self.fault is None and self.ratio.severity <= MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something to look at."""

    group: str
    name: str
    run: Callable[[], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the cases of one gate share."""

    engine: Engine
    oracle: Oracle
    facts: Facts
    level: Level
    texts: Sequence[Sequence[int]] | None = None
    sequences: dict[str, Ids] = field(init=False)
    """Named sequences, as long as the longest case."""

    def __post_init__(self) -> None:
        longest = max(*self.lengths_at(1), self.facts.within(self.level.decoded))
        named = sequences_of(longest, self.facts.vocab_size, self.texts, max(self.batches))
        object.__setattr__(self, "sequences", named)

    @property
    def lengths(self) -> list[int]:
        """Sequence lengths to look at, ascending."""
        return lengths_of(self.level, self.facts)

    def lengths_at(self, batch: int) -> list[int]:
        """Return those that are affordable at a batch size, ascending; for one row also the longest such."""
        room = self.facts.affordable(batch)
        within = [length for length in self.lengths if length <= room]
        shortened = batch == 1 and len(within) < len(self.lengths) and self.facts.within(room) == room > 0
        return sorted({*within, room}) if shortened else within or self.lengths[:1]

    def longest_of(self, row: int) -> int:
        """Return how much of the row-th sequence the cases ask for."""
        whole = [self.lengths_at(batch)[-1] for batch in self.batches if row < batch]
        return max([*whole, self.facts.within(self.level.decoded), self.facts.within(SHORT)])

    @property
    def batches(self) -> list[int]:
        """Batch sizes to look at, ascending."""
        return batches_of(self.level, self.facts)

    @property
    def last_only(self) -> bool:
        """Whether the program computes the logits of the last position alone."""
        ids = self.rows(1)[0][: self.facts.within(2)]
        try:
            return self.oracle.truth(ids).first > 0
        except Refused:
            return False

    def rows(self, batch: int, start: int = 0) -> list[Ids]:
        """Return ``batch`` of the sequences whole, from the ``start``-th on, over and over if need be."""
        every = list(self.sequences.values())
        return [every[(start + row) % len(every)] for row in range(batch)]
