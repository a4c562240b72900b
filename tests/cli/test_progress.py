"""What a log shows of a long command: a line a stage, on stderr, after some seconds."""

from __future__ import annotations

import io
import re
import threading
import time
from pathlib import Path

import pytest

from gpt_onnx.cli import _progress as module
from gpt_onnx.cli._progress import STAGES, WAIT_S, StageLines, progress_bars, stage_lines

LINE = re.compile(r"([0-9,]+) s: (.+)\n")


def lines_at(times: list[float], monkeypatch: pytest.MonkeyPatch) -> tuple[StageLines, list[str]]:
    """Lines under a clock that shows one time after another, the first at the beginning."""
    clock, written = iter(times), list[str]()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    return StageLines("read", written.append), written


def test_a_stage_is_said_once_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, written = lines_at([0, 6, 6, 7, 9, 9], monkeypatch)
    lines.show("write", 0, 3)
    lines.show("write", 1, 3)
    lines.show("check", 0, 1)
    assert written == ["6 s: writing weights\n", "9 s: comparing with PyTorch\n"]


def test_what_is_done_soon_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, written = lines_at([0, 1, WAIT_S - 0.01], monkeypatch)
    lines.show("write", 0, 1)
    lines.show("check", 0, 1)
    assert written == []


def test_a_long_first_stage_is_said_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, said = io.StringIO(), threading.Event()
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(StageLines, "say", lambda self: said.set())
    with stage_lines("read"):
        assert said.wait(10)


@pytest.mark.parametrize("lines", [stage_lines, progress_bars])
def test_a_closed_log_is_no_fault(lines: object, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    monkeypatch.setattr("sys.stderr", stream)
    with stage_lines("read", watched=False) as show:
        assert show is not None
        show("trace", 0, 1)
        stream.close()
        show("write", 0, 1)


def test_every_step_of_the_program_has_its_words() -> None:
    root = Path(__file__).parents[2]
    sources = [*(root / "export").rglob("*.py"), *(root / "gpt_onnx" / "cli").glob("*.py")]
    text = "".join(path.read_text() for path in sources)
    steps = set(re.findall(r'progress\("(\w+)"|STEP = "(\w+)"|(?:_lines|_bars|_bar)\("(\w+)"', text))
    assert {name for names in steps for name in names if name} <= set(STAGES)


def test_an_export_writes_a_line_a_stage_to_a_log_and_nothing_to_stdout(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpt_onnx.cli import main

    monkeypatch.setattr(module, "WAIT_S", 0.0)
    for quiet in ([], ["-q"]):
        with pytest.raises(SystemExit):
            main([*quiet, "export", str(checkpoint), "-o", str(tmp_path / f"b{len(quiet)}")])
        told = capsys.readouterr()
        stages = [match[1] for match in LINE.findall(told.err)]
        assert len(set(stages)) == len(stages) == (0 if quiet else 6)
        assert not LINE.search(told.out)
