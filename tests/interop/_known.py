"""A bundle with the greedy text that this project's own runtime makes of it, and the judgement of others'.

    known.check(rows)           # rows of ids that a client generated: equal, or apart at near ties alone
    known.texts                 # what the ids say

Each id that a client chose must have the largest logit after what the client itself wrote before it, or one
that is nearer to the largest than rounding tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NEW_TOKENS = 64
PROMPTS = ("My fellow citizens,", "The state of the Union is strong, and our people")
"""Of unequal lengths, so that a batch of the two has padding."""
BROKEN = "\ufffd"
NEAR_TIE: Mapping[str, float] = {"fp32": 2e-5, "fp16": 5e-3, "int8": 2e-2, "int4": 2e-2}
"""Difference of two logits, over the largest absolute logit, below which either may be chosen.

Of float32 it is what sums in another order come to. Where activations are rounded, a sum in another order
moves some of them by a whole step; half precision has 11 bits.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A bundle and its greedy continuations of PROMPTS."""

    path: Path
    name: str
    precision: str
    prompt_ids: list[list[int]]
    ids: list[list[int]]
    """NEW_TOKENS for each prompt."""
    texts: list[str]
    """What ``ids`` add to each prompt."""
    gpt: Any
    """The loaded bundle (gpt_onnx.runtime.TextGPT)."""

    def check(self, rows: Sequence[Sequence[int]]) -> None:
        """Hold a client's ids to this runtime's.

        Args:
            rows: For each of the first prompts NEW_TOKENS new ids.
        """
        assert rows, "the client gave no rows"
        for number, row in enumerate(rows):
            assert len(row) == NEW_TOKENS, f"row {number} has {len(row)} new ids"
            if list(row) != self.ids[number]:
                self._check_near_ties(number, list(row))

    def check_texts(self, rows: Sequence[Sequence[int]], texts: Sequence[str] | None) -> None:
        """Hold a client's words for its ids to this runtime's; a client of ids alone has no words.

        Text is compared up to bytes that are no UTF-8, where clients go on, stop or leave out as they like.
        """
        for number, text in enumerate(texts or ()):
            whole, *broken = self.gpt.continuation(self.prompt_ids[number], rows[number]).split(BROKEN)
            assert text.startswith(whole) if broken else text == whole

    def _check_near_ties(self, number: int, row: list[int]) -> None:
        prompt = self.prompt_ids[number]
        logits = self.gpt.engine.logits([prompt + row[:-1]])[0, len(prompt) - 1 :]
        chosen = logits[np.arange(NEW_TOKENS), row]
        missing = (logits.max(axis=1) - chosen) / np.abs(logits).max()
        first = next(place for place in range(NEW_TOKENS) if row[place] != self.ids[number][place])
        assert missing.max() <= NEAR_TIE[self.precision], (
            f"row {number} parts from this runtime's text at token {first}, and its choices are up to "
            f"{missing.max():.3g} of the largest logit below the best: {row} for {self.ids[number]}"
        )


def known_of(path: Path, name: str, precision: str) -> Known:
    """Load a bundle and generate from it."""
    from gpt_onnx import load

    gpt = load(path, provider="cpu", threads=1)
    made = [
        gpt.generate([prompt], NEW_TOKENS, temperature=0, ignore_eos=True, speculate="off")[0]
        for prompt in PROMPTS  # a graph of frozen lengths has one row
    ]
    return Known(
        path=path,
        name=name,
        precision=precision,
        prompt_ids=[list(row.prompt_ids) for row in made],
        ids=[list(row.ids) for row in made],
        texts=[row.text for row in made],
        gpt=gpt,
    )
