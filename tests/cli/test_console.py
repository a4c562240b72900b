"""What is written to a terminal, and what is not."""

from __future__ import annotations

import io
import signal
import warnings

import pytest
from rich.table import Table

from gpt_onnx.cli import main
from gpt_onnx.cli._console import (
    Answer,
    cancel_request,
    plain_warnings,
    print_tables,
    table_console,
    whole_writes,
)
from gpt_onnx.cli._streams import clean, say, take_every_name
from gpt_onnx.errors import GptOnnxError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_text_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    answer = Answer()
    answer.write("a\x1b[2Jb\rc\x9bd\te\n日")
    assert answer_text() == "a\ufffd[2Jb\ufffdc\ufffdd\te\n日"


def answer_text() -> str:
    import sys

    assert isinstance(sys.stdout, io.StringIO)
    return sys.stdout.getvalue()


def test_a_file_gets_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    answer = Answer()
    answer.end()
    assert answer_text() == ""  # no line was begun
    answer.write("a\x1b[2Jb")
    answer.end()
    assert answer_text() == "a\x1b[2Jb\n"


def test_an_error_or_a_note_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("Error: \x1b[2Ja\r\x9bb\tc\nd")
    assert capsys.readouterr().err == "Error: \ufffd[2Ja\ufffd\ufffdb\tc\nd\n"
    assert clean("keys: a\x1b[0m\nNote: b") == "keys: a\ufffd[0m\ufffdNote: b"


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "a\nb"],
        ["export", "a\nb"],
        ["verify", "bundle", "c", "a\nb"],
        ["verify", "bundle", "--a\nb"],
        ["bench", "bundle", "--plot", "a\nb.txt"],
        ["generate", "bundle", "-f", "a\nb"],
    ],
)
def test_a_line_break_in_a_name_breaks_no_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "Error: " in line]
    assert "a\\nb" in line


def test_an_error_with_a_list_keeps_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = GptOnnxError("these:\n  a;\n  b")
    monkeypatch.setattr(error, "has_lists", True)

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("gpt_onnx.export.export_bundle", fail)
    with pytest.raises(SystemExit):
        main(["export", "absent"])
    assert capsys.readouterr().err.endswith("Error: these:\n  a;\n  b\n")


def test_stdout_takes_the_name_of_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="utf-8", errors="strict"))
    take_every_name()
    print("a\udcff日", flush=True)
    assert raw.getvalue() == b"a\\udcff\xe6\x97\xa5\n"


def test_a_table_shows_brackets_and_colons_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("x[/b] [red]y :cat:")
    table.add_row("a[/b] [red]c :cat:")
    print_tables(table)
    out = capsys.readouterr().out
    assert "x[/b] [red]y :cat:" in out
    assert "a[/b] [red]c :cat:" in out


def test_warnings_are_one_line_without_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_warnings():
        warnings.warn("too long", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: too long\n"


def test_the_first_ctrl_c_is_a_request_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with cancel_request() as cancelled:
        assert not cancelled()
        signal.raise_signal(signal.SIGINT)
        assert cancelled()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_waits_for_the_end_of_a_write_but_the_second_does_not() -> None:
    done = []

    def write() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("to its end")

    def hang() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("not reached")

    for action in (write, hang):
        with pytest.raises(KeyboardInterrupt), whole_writes() as whole:
            whole(action)
    with pytest.raises(KeyboardInterrupt), whole_writes():
        signal.raise_signal(signal.SIGINT)  # not in a write
    assert done == ["to its end"]


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with cancel_request() as cancelled, whole_writes():
            signal.raise_signal(signal.SIGINT)
            assert not cancelled()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_narrow_terminal_takes_no_number_from_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpt_onnx.cli._parity_table import parity_table
    from gpt_onnx.export.gate import Row

    monkeypatch.setenv("COLUMNS", "20")
    group = "prefill, then one token at a time"
    row = Row(group=group, cases=1234, skipped=0, failed=0, median=0.51, worst=1.75, worst_rms=1.25)
    table_console().print(parity_table([row]))
    printed = capsys.readouterr().out
    assert "\u2026" not in printed
    assert all(cell in printed for cell in (group, "1234", "0.51", "1.75", "1.25", "worst RMS"))
