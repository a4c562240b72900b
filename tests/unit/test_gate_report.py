"""What a gate reports: the table, parity.json, and the sentence."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gpt_onnx.export.gate.case import Finding
from gpt_onnx.export.gate.report import GateReport, Outcome
from gpt_onnx.export.gate.tolerance import Ratio


def outcome(group: str, peak: float | None = None, **finding: Any) -> Outcome:
    ratio = None if peak is None else Ratio(peak=peak, rms=peak / 2)
    return Outcome(group=group, name=f"{group} {peak}", finding=Finding(ratio=ratio, **finding))


SKIPPED = Outcome(
    group="lengths", name="99 tokens", finding=Finding(), skipped="the original program says: no"
)


def report(*outcomes: Outcome) -> GateReport:
    return GateReport(
        level="standard",
        provider="cpu",
        reference="GPT",
        reference_dtype="float64",
        compared_with_original=False,
        versions={"torch": "2.13.0", "onnx": "1.23.2"},
        hashes={"onnx/model.onnx": "0" * 64},
        outcomes=outcomes,
    )


GOOD = report(outcome("lengths", 1.0), outcome("lengths", 2.0), outcome("greedy", near_ties=2), SKIPPED)


def test_a_report_passes_where_every_case_does() -> None:
    assert GOOD.passed
    assert GOOD.summary() == "3 cases agree with GPT; the largest error is 2 times what float32 costs."


def test_rows_sum_up_the_groups_in_order() -> None:
    lengths, greedy = GOOD.rows
    assert (lengths.group, lengths.cases, lengths.skipped, lengths.failed) == ("lengths", 3, 1, 0)
    assert (lengths.median, lengths.worst, lengths.worst_rms) == (1.5, 2.0, 1.0)
    assert (greedy.group, greedy.median) == ("greedy", None)


def test_the_json_is_strict_and_says_what_was_looked_at() -> None:
    values = json.loads(json.dumps(GOOD.to_json(), allow_nan=False))
    assert values["passed"] is True
    assert values["summary"] == {
        "cases": 4,
        "skipped": 1,
        "failed": 0,
        "median_ratio": 1.5,
        "worst_ratio": 2.0,
        "worst_rms_ratio": 1.0,
        "near_ties": 2,
    }
    assert values["cases"][0] == {
        "group": "lengths",
        "name": "lengths 1.0",
        "passed": True,
        "ratio": 1.0,
        "rms_ratio": 0.5,
    }
    assert values["cases"][3]["skipped"] == "the original program says: no"
    assert values["seed"] == 20170612


@pytest.mark.parametrize("peak", [4.1, math.inf, math.nan])
def test_one_bad_case_fails_the_report(peak: float) -> None:
    bad = report(outcome("lengths", 1.0), outcome("cache", peak))
    assert not bad.passed
    json.dumps(bad.to_json(), allow_nan=False)
    assert bad.summary().startswith("1 of 2 cases differ from GPT; cache: ")


def test_the_sentence_names_the_worst_error() -> None:
    bad = report(outcome("lengths", 5.0), outcome("cache", 50.0), outcome("greedy", fault="token 3 is 4"))
    assert "3 of 3" in bad.summary()
    assert (
        "the error is 50 times what float32 costs (at most 4), its RMS 25 times (at most 3)." in bad.summary()
    )


def test_a_fault_without_numbers_is_named() -> None:
    bad = report(outcome("lengths", 1.0), outcome("greedy", fault="BundleError: it is damaged."))
    assert bad.summary() == "1 of 2 cases differ from GPT; greedy: greedy None: BundleError: it is damaged."


def test_a_report_without_one_case_that_ran_fails() -> None:
    assert not report(SKIPPED).passed
    assert "refuses all of them" in report(SKIPPED).summary()
