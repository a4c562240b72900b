"""The measurement of peers: everyone named can be started, what is missing is told, bars are judged."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.peers.bars import DECODE, FILE, FP32, PREFILL, Bar, judge
from benchmarks.peers.contenders import CONTENDERS, FORMS, GPT2, OURS, Contender
from benchmarks.peers.environments import HERE, STAMP, PeerMissingError, python_of
from benchmarks.peers.forms import MAKERS, Forms
from benchmarks.peers.run import Preparation
from benchmarks.peers.tables import contender_table, verdict_table
from gpt_onnx.errors import GptOnnxError
from gpt_onnx.runtime.bench import BenchPlan, BenchReport
from gpt_onnx.runtime.bench.entrant import PEER
from gpt_onnx.runtime.bench.environment import describe
from gpt_onnx.runtime.bench.report import ContenderReport, PromptReport
from gpt_onnx.runtime.bench.statistics import Summary


def contender(name: str, step_ms: float, file_bytes: int) -> ContenderReport:
    prompt = PromptReport(
        prompt_tokens=128,
        batch_size=1,
        ttft_ms=Summary.of([100.0]),
        step_ms=Summary.of([step_ms]),
        decode_tokens_per_s=1e3 / step_ms,
        ttft_rounds_ms=(100.0,) * 3,
        step_rounds_ms=(step_ms,) * 3,
    )
    once = Summary.of([2000.0])
    return ContenderReport(
        name=name,
        kind=PEER,
        source="",
        device="cpu",
        versions={},
        details={},
        file_bytes=file_bytes,
        kl=None,
        start_ms=once,
        load_ms=once,
        resident_bytes=1,
        peak_resident_bytes=10**8,
        prompts=[prompt],
    )


def report(times: Mapping[str, float]) -> BenchReport:
    contenders = [contender(name, step_ms, 10**6 * len(name)) for name, step_ms in times.items()]
    return BenchReport(plan=BenchPlan(threads=1), environment=describe(1), contenders=contenders, notes=[])


@pytest.mark.parametrize("name", [one.name for one in CONTENDERS])
def test_every_contender_can_be_made_from_the_checkpoint(name: str) -> None:
    one = next(one for one in CONTENDERS if one.name == name)
    form, peers = one.form, {one.peer} - {""}
    while form not in (OURS, GPT2):
        maker = FORMS[form].maker
        peers |= set() if maker in MAKERS else {maker}
        form = FORMS[form].source
    assert all((HERE / f"{peer}_peer.py").is_file() for peer in peers)
    assert all((HERE / f"requirements-{peer}.txt").is_file() for peer in peers)
    assert (one.kind == PEER) == bool(one.peer)


def test_requirements_are_pinned() -> None:
    for file in HERE.glob("requirements-*.txt"):
        lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert all("==" in line for line in lines), file.name


def test_an_environment_that_is_as_required_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "genai").mkdir()
    (tmp_path / "genai" / STAMP).write_text((HERE / "requirements-genai.txt").read_text())
    assert python_of("genai", tmp_path).parts[-3] == "genai"


def test_an_environment_that_cannot_be_made_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(PeerMissingError, match="genai cannot be installed"):
        python_of("genai", tmp_path)


def test_a_form_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "f32.gguf").touch()
    forms = Forms(tmp_path, lambda peer: Path(sys.executable), lambda text: None)
    with pytest.raises(GptOnnxError, match=r"llama_cpp cannot make q4_0.gguf of f32.gguf: .*No module named"):
        forms.path("q4_0.gguf")


def test_a_peer_that_is_missing_is_noted_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    (tmp_path / "optimum").mkdir()
    prepared = Preparation(tmp_path / "environments", tmp_path)
    prepared.prepare(Contender(name="optimum fp32", form="optimum", peer="optimum"))
    prepared.prepare(Contender(name="a bundle", form=OURS, kind="bundle"))
    assert prepared.missing.keys() == {"optimum fp32"}
    assert prepared.sources == {"a bundle": tmp_path / OURS}
    assert "left out" in capsys.readouterr().err


def test_a_bar_is_judged_against_the_fastest() -> None:
    bar = Bar(what=DECODE, ours=FP32, theirs=("slow", "fast", "absent"), wanted=1.5, prompt_tokens=128)
    (verdict,) = judge(report({FP32: 2.0, "slow": 9.0, "fast": 4.0}), [bar])
    assert (verdict.against, verdict.ratio, verdict.is_met) == ("fast", 2.0, True)


def test_a_size_must_not_exceed_its_share() -> None:
    bars = [Bar(what=FILE, ours="ab", theirs=("abcd",), wanted=wanted) for wanted in (0.5, 0.4)]
    assert [verdict.is_met for verdict in judge(report({"ab": 1.0, "abcd": 1.0}), bars)] == [True, False]


def test_a_bar_without_its_contenders_is_left_out() -> None:
    bar = Bar(what=PREFILL, ours=FP32, theirs=("absent",), wanted=1.0, prompt_tokens=128)
    assert judge(report({FP32: 2.0}), [bar]) == []


def test_tables_have_a_row_for_each_contender_and_for_the_missing() -> None:
    found = report({FP32: 2.0, "peer": 4.0})
    lines = list(contender_table(found, {"gone": "why"}))
    assert lines[2] == f"| {FP32} | 500 | 100 | - | 13 | 100 | 2.00 |"
    assert lines[-1] == "| gone | - | - | - | - | - | - |"
    bar = Bar(what=DECODE, ours=FP32, theirs=("peer",), wanted=1.9, prompt_tokens=128)
    row = list(verdict_table(judge(found, [bar])))[-1]
    assert row == f"| decode, {FP32} | 128 | peer | at least 1.90 | 2.00 (2.00 to 2.00) | yes |"
