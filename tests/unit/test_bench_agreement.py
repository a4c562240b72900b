from __future__ import annotations

import pytest

from gpt_onnx.runtime.bench.agreement import DIFFERENT, NEAR, NEAR_TIE, SAME, agree
from gpt_onnx.runtime.bench.contender import Answer


def answer(*rows: list[int], runner_up: int = 9, gap: float = 0.5) -> Answer:
    steps = [list(step) for step in zip(*rows, strict=True)]
    return Answer(
        tokens=steps,
        runners_up=[[runner_up] * len(rows) for _ in steps],
        gaps=[[gap] * len(rows) for _ in steps],
    )


def test_equal_tokens_are_the_same() -> None:
    found = agree(answer([1, 2, 3], [4, 5, 6]), answer([1, 2, 3], [4, 5, 6]))
    assert (found.verdict, found.equal_tokens, found.tokens) == (SAME, 6, 6)


def test_a_difference_at_a_near_tie_is_allowed_and_what_follows_is_not_compared() -> None:
    found = agree(answer([1, 9, 7]), answer([1, 2, 3], gap=NEAR / 2))
    assert (found.verdict, found.equal_tokens, found.tokens) == (NEAR_TIE, 1, 3)


@pytest.mark.parametrize(("chosen", "gap"), [(9, 2 * NEAR), (8, NEAR / 2), (9, float("nan"))])
def test_a_clear_choice_or_another_token_than_the_runner_up_is_different(chosen: int, gap: float) -> None:
    assert agree(answer([1, chosen, 3]), answer([1, 2, 3], gap=gap)).verdict == DIFFERENT


def test_the_worst_row_decides() -> None:
    found = agree(answer([1, 2], [4, 8]), answer([1, 2], [4, 5]))
    assert (found.verdict, found.equal_tokens) == (DIFFERENT, 3)
