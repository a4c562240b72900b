"""How single cases are judged: tokens, exceptions, refusals, and where padding stands."""

from __future__ import annotations

import numpy as np
import pytest

from gpt_onnx.export.gate.case import Case, Finding
from gpt_onnx.export.gate.gate import look_at, look_at_all
from gpt_onnx.export.gate.greedy import Step, judge
from gpt_onnx.export.gate.padding import mask_of, padded
from gpt_onnx.export.gate.reference import Refused


def step(*logits: float, tolerance: float = 0.1) -> Step:
    return Step(logits=np.array(logits), tolerance=tolerance)


def test_near_ties_accept_either_token_and_are_counted() -> None:
    assert judge([step(1.0, 0.85)], (1,)) == Finding(near_ties=1)
    assert judge([step(1.0, 0.85)], (0,)) == Finding(near_ties=1)
    assert judge([step(1.0, 0.7)], (0,)) == Finding(near_ties=0)


def test_a_token_beyond_twice_the_tolerance_is_refused() -> None:
    finding = judge([step(1.0, 0.0), step(0.0, 1.0, 0.7)], (0, 2))
    assert not finding.passed
    assert finding.fault is not None
    assert "token 2 is 2; float64 prefers 1" in finding.fault


def test_a_tolerance_that_is_nan_accepts_nothing() -> None:
    assert not judge([step(1.0, 1.0, tolerance=float("nan"))], (0,)).passed


def test_what_an_engine_raises_is_a_failed_case() -> None:
    def fail() -> Finding:
        raise RuntimeError("no such operator")

    outcome = look_at(Case(group="lengths", name="x", run=fail))
    assert not outcome.passed
    assert outcome.finding.fault == "RuntimeError: no such operator"


def test_what_the_original_refuses_is_skipped_and_said() -> None:
    def refuse() -> Finding:
        raise Refused("block size exceeded")

    outcome = look_at(Case(group="lengths", name="x", run=refuse))
    assert outcome.passed
    assert outcome.skipped == "the original program says: block size exceeded"


def test_an_interrupt_is_not_a_finding() -> None:
    def interrupt() -> Finding:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        look_at(Case(group="lengths", name="x", run=interrupt))


def test_progress_counts_every_case() -> None:
    told: list[tuple[int, int]] = []
    cases = [Case(group="lengths", name=str(i), run=Finding) for i in range(3)]
    list(look_at_all(cases, lambda done, total: told.append((done, total))))
    assert told == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("side", "expected"), [("left", [[0, 1, 1], [1, 1, 1]]), ("right", [[1, 1, 0], [1, 1, 1]])]
)
def test_padding_stands_on_its_side(side: str, expected: list[list[int]]) -> None:
    mask = mask_of([2, 3], 3, side)
    assert mask.tolist() == expected
    ids = padded([(7, 8), (1, 2, 3)], mask, 31, stream=0)
    assert ids[mask == 1].tolist() == [7, 8, 1, 2, 3]
