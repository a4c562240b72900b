"""Second looks: where one float32 evaluation was lucky, programs beside it say what float32 costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gpt_onnx.config import GPTConfig
from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate import GptReference, ModuleReference, run_gate
from gpt_onnx.export.gate.case import MARGIN, Case, Finding
from gpt_onnx.export.gate.cases import Ids
from gpt_onnx.export.gate.folders import without_folders
from gpt_onnx.export.gate.gate import look_at, look_at_all
from gpt_onnx.export.gate.nudged import COUNT, SIZE, nudged
from gpt_onnx.export.gate.oracle import Oracle
from gpt_onnx.export.gate.reference import Units
from gpt_onnx.export.gate.tolerance import MAX_FACTOR, Ratio, RowErrors
from gpt_onnx.export.gate.truth import Truth
from gpt_onnx.model import GPT

IDS = (3, 1, 4, 1, 5, 9, 2, 6)


def narrow_gpt(seed: int, **changes: Any) -> GPT:
    """A GPT of width two: so few roundings that one evaluation in float32 may be right by luck."""
    torch.manual_seed(seed)
    values: dict[str, Any] = {"vocab_size": 37, "context_length": 16, "n_layer": 2, "n_embd": 2}
    gpt = GPT(GPTConfig(**(values | changes)))
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return gpt.eval()


class LogitsOnly(nn.Module):
    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.gpt = gpt

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.gpt(ids)[0]
        return logits


@pytest.mark.parametrize(("seed", "heads"), [(8, 1), (1, 2), (3, 2)])
def test_a_right_graph_of_a_narrow_model_is_accepted_at_a_second_look(
    tmp_path: Path, seed: int, heads: int
) -> None:
    gpt = narrow_gpt(seed, n_head=heads, head_size=2 // heads)
    path = export_bundle(gpt, tmp_path / "narrow", check="none").path
    report = run_gate(path, GptReference(gpt), level="quick", threads=1)
    assert report.passed, report.summary()
    assert any(outcome.finding.beside for outcome in report.outcomes)
    for entry, outcome in zip(report.to_json()["cases"], report.outcomes, strict=True):
        assert entry.get("careful_unit", False) == (outcome.finding.beside > 0)


@pytest.mark.parametrize("kind", ["our own", "a module"])
def test_careful_units_are_never_smaller_and_the_truth_is_the_same(kind: str) -> None:
    gpt = narrow_gpt(0, n_head=1)
    reference = GptReference(gpt) if kind == "our own" else ModuleReference(LogitsOnly(gpt))
    oracle = Oracle(reference)
    oracle.hold(IDS)
    once = oracle.truth(IDS[:5])
    with oracle.careful(COUNT):
        twice = oracle.truth(IDS[:5])
    after = oracle.truth(IDS[:5])
    np.testing.assert_array_equal(once.logits(), twice.logits())
    assert (twice.errors.peak_error >= once.errors.peak_error).all()
    assert (twice.errors.square_error >= once.errors.square_error).all()
    assert (twice.errors.peak_error > once.errors.peak_error).any()
    np.testing.assert_array_equal(after.errors.peak_error, once.errors.peak_error)
    assert len(once.caches) == len(twice.caches) == (4 if kind == "our own" else 0)


class Counting:
    """A reference that notes of how many tokens and programs it is asked."""

    shares_prefixes = True

    def __init__(self) -> None:
        self.reference = GptReference(narrow_gpt(0, n_head=1))
        self.asked: list[tuple[list[int], int]] = []

    def compute_all(self, sequences: Sequence[Ids], units: Units) -> list[Truth]:
        self.asked.append(([len(ids) for ids in sequences], units.beside))
        return self.reference.compute_all(sequences, units)


def test_programs_beside_a_long_sequence_are_fewer_and_never_none() -> None:
    reference = Counting()
    oracle = Oracle(reference, 24)  # type: ignore[arg-type]  # what of it is used
    long, longer = IDS, tuple(range(30))
    oracle.hold(long)
    assert reference.asked == [([8], 0)]
    with oracle.careful(COUNT):
        oracle.truths([longer, IDS[:1], long, long[:5]])
    assert reference.asked[1:] == [([8], 3), ([30], 1), ([5], 4), ([1], COUNT)]
    with oracle.careful(1):
        oracle.truths([long[:5], longer, long])
    assert reference.asked[5:] == [([8], 1), ([30], 1)]
    oracle.truths([long, long[:5]])
    assert len(reference.asked) == 7


def test_a_second_look_takes_one_program_and_many_where_that_is_not_enough() -> None:
    looks: list[float] = [2.0, 1.1, 0.9]
    oracle = Oracle(GptReference(narrow_gpt(0, n_head=1)))
    for first, beside in ((2, 0), (1, 1), (0, COUNT)):
        left = looks[first:]
        case = Case(group="lengths", name="x", run=lambda left=left: Finding(ratio=ratio(left.pop(0))))  # type: ignore[misc]
        [outcome] = look_at_all([case], None, oracle)
        assert (outcome.passed, outcome.finding.beside, left) == (True, beside, [])


def test_a_wide_models_unit_hardly_grows_so_that_faults_stay_faults() -> None:
    """The bound is 4 units and the mildest fault known 7.5 of them."""
    for seed in range(5):
        reference = GptReference(narrow_gpt(seed, n_embd=64, n_head=4))
        once, twice = reference.compute(IDS).unit(), reference.compute(IDS, Units(beside=COUNT)).unit()
        assert twice.peak <= 1.8 * once.peak
        assert twice.rms <= 1.8 * once.rms


def test_programs_beside_differ_in_every_weight_and_by_little() -> None:
    gpt = narrow_gpt(0, n_head=1)
    copies = [copied.state_dict() for copied in nudged(gpt, 5)]
    assert len(copies) == 5
    for name, weight in gpt.state_dict().items():
        for copied in copies:
            assert ((copied[name] - weight).abs() <= 1.2 * SIZE * weight.abs()).all()
        assert any((copied[name] != weight).float().mean() > 0.8 for copied in copies)
    again = [copied.state_dict() for copied in nudged(gpt, 5)]
    assert all(torch.equal(a[name], b[name]) for a, b in zip(copies, again, strict=True) for name in a)


def test_the_largest_error_of_each_row_counts() -> None:
    truth = np.array([[1.0, -2.0], [0.0, 4.0]])
    one = RowErrors.measure(truth + np.array([[0.5, 0.0], [0.1, 0.0]]), truth)
    other = RowErrors.measure(truth + np.array([[0.0, 0.2], [0.3, 0.3]]), truth)
    largest = RowErrors.largest([one, other])
    np.testing.assert_allclose(largest.peak_error, [0.5, 0.3])
    np.testing.assert_allclose(largest.square_error, [0.25, 0.18])
    np.testing.assert_array_equal(largest.peak, [2.0, 4.0])


def ratio(times: float) -> Ratio:
    return Ratio(peak=times * MAX_FACTOR, rms=0.0)


@pytest.mark.parametrize(
    ("finding", "marginal"),
    [
        (Finding(), False),
        (Finding(ratio=ratio(0.9)), False),
        (Finding(ratio=ratio(1.1)), True),
        (Finding(ratio=ratio(MARGIN * 1.1)), False),
        (Finding(ratio=ratio(math.inf)), False),
        (Finding(ratio=ratio(math.nan)), False),
        (Finding(ratio=ratio(0.9), fault="the padding shows"), False),
        (Finding(fault="token 3 is 5"), True),
    ],
)
def test_only_what_failed_by_little_is_looked_at_again(finding: Finding, marginal: bool) -> None:
    assert finding.marginal is marginal


def test_after_a_second_look_that_failed_there_is_no_other() -> None:
    oracle, looks = Oracle(GptReference(narrow_gpt(0, n_head=1))), 0

    def run() -> Finding:
        nonlocal looks
        looks += 1
        return Finding(ratio=ratio(2.0))

    cases = [Case(group="lengths", name=str(index), run=run) for index in range(3)]
    outcomes = list(look_at_all(cases, None, oracle))
    assert [outcome.finding.beside for outcome in outcomes] == [COUNT, 0, 0]
    assert looks == 5
    assert not any(outcome.passed for outcome in outcomes)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("/home/me/b/onnx/model.onnx returned NaN", "model.onnx returned NaN"),
        ("failed at ../up/model.onnx: no file", "failed at model.onnx: no file"),
        (r"C:\Users\me\model.onnx returned NaN", "model.onnx returned NaN"),
        ("'/tmp/x y/model.onnx' is bad", "'model.onnx' is bad"),
        ("logits (1, 3)/(1, 2) and 3/4 of rows, a/b", "logits (1, 3)/(1, 2) and 3/4 of rows, a/b"),
        ("/model/Add_3: Non-zero status", "Add_3: Non-zero status"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
    ],
)
def test_findings_name_files_without_their_folders(said: str, left: str) -> None:
    assert without_folders(said, "/tmp/x y") == left


def test_what_an_engine_says_of_the_bundle_is_the_same_wherever_it_lies() -> None:
    def fail() -> Finding:
        raise RuntimeError("Load model from /data/my bundle/onnx/model.onnx failed")

    outcome = look_at(Case(group="lengths", name="x", run=fail), folder="/data/my bundle")
    assert outcome.finding.fault == "RuntimeError: Load model from onnx/model.onnx failed"
