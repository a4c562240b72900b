"""Whether two contenders chose the same tokens, and if not, whether it was a near tie."""

from __future__ import annotations

from dataclasses import dataclass

from .contender import Answer

SAME, NEAR_TIE, DIFFERENT = "same", "same until a near tie", "different"

NEAR = 1e-4
"""Relative gap of the two best logits below which float32 programs may choose either. Programs that add in
another order differ by 1e-6 to 1e-5 of the largest logit; a wrong graph by more than 1e-3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two generations from one prompt are the same."""

    verdict: str
    """SAME, NEAR_TIE or DIFFERENT, the worst over the rows."""
    equal_tokens: int
    """Tokens until the first difference, summed over the rows; behind it the contexts differ."""
    tokens: int
    """Tokens in all."""


def _equal_prefix(ours: list[int], theirs: list[int]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=True))
    return next((step for step, (a, b) in pairs if a != b), len(theirs))


def _row_verdict(step: int, row: int, ours: Answer, baseline: Answer) -> str:
    if step == len(baseline.tokens):
        return SAME
    if not baseline.runners_up:  # logits that are not to be had tell of no ties
        return DIFFERENT
    chosen, runner_up = ours.tokens[step][row], baseline.runners_up[step][row]
    is_tie = chosen == runner_up and baseline.gaps[step][row] <= NEAR
    return NEAR_TIE if is_tie else DIFFERENT


def agree(ours: Answer, baseline: Answer) -> Agreement:
    """Compare the tokens of two answers to the same prompts."""
    columns = list(zip(*ours.tokens, strict=True)), list(zip(*baseline.tokens, strict=True))
    prefixes = [_equal_prefix(list(a), list(b)) for a, b in zip(*columns, strict=True)]
    verdicts = [_row_verdict(step, row, ours, baseline) for row, step in enumerate(prefixes)]
    order = (SAME, NEAR_TIE, DIFFERENT)
    return Agreement(
        verdict=max(verdicts, key=order.index),
        equal_tokens=sum(prefixes),
        tokens=len(prefixes) * len(baseline.tokens),
    )
