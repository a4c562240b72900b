"""Standard streams that are closed or full: one sentence where there is room for it, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

FULL = "/dev/full"
CLOSED = "no room"

pytestmark = pytest.mark.skipif(not os.path.exists(FULL), reason="the system has no device that is full")


@dataclass
class Result:
    code: int
    out: str
    err: str


def run(arguments: Sequence[str], redirection: str, *, buffered: bool = True) -> Result:
    """Run a command as a shell does that redirects or closes some of its streams."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    line = f'exec "$@" {redirection}'
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "gpt_onnx", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return Result(done.returncode, done.stdout, done.stderr)


def commands(bundle: Path) -> list[list[str]]:
    path = str(bundle)
    return [
        ["-h"],
        ["--version"],
        ["inspect", path],
        ["inspect", path, "--json"],
        ["generate", path, "-p", "a", "-n", "3", "--temp", "0"],
        ["generate", path, "-p", "a", "-n", "3", "--temp", "0", "--json"],
        ["generate", path, "-p", "a", "-p", "b", "-n", "3", "--temp", "0", "--no-stream"],
    ]


@pytest.mark.parametrize("index", range(7))
@pytest.mark.parametrize(
    ("redirection", "buffered"), [(f">{FULL}", True), (f">{FULL}", False), (">&-", True)]
)
def test_an_answer_that_cannot_be_written_is_one_sentence(
    bigram: Path, index: int, redirection: str, buffered: bool
) -> None:
    result = run(commands(bigram)[index], redirection, buffered=buffered)
    reason = "Bad file descriptor" if redirection == ">&-" else "No space left on device"
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"Error: the answer or a file could not be written: {reason}; see where stdout goes, and that there "
        "is room.\n"
    )


@pytest.mark.parametrize("redirection", [f"2>{FULL}", "2>&-"])
def test_notes_that_cannot_be_written_do_not_spoil_the_answer(bigram: Path, redirection: str) -> None:
    result = run(["generate", str(bigram), "-p", "a", "-n", "3", "--stats"], redirection)
    assert result == Result(0, "bcd\n", "")


@pytest.mark.parametrize("redirection", [f"2>{FULL}", "2>&-", f">{FULL} 2>&1", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("arguments", "code"), [(["inspect", "/nowhere"], 1), (["exprot"], 2)])
def test_an_error_that_cannot_be_written_keeps_its_exit_code(
    redirection: str, arguments: list[str], code: int
) -> None:
    assert run(arguments, redirection) == Result(code, "", "")


def test_a_closed_stdin_is_not_an_empty_prompt(bigram: Path) -> None:
    result = run(["generate", str(bigram), "-f", "-"], "<&-")
    assert (result.code, result.out) == (1, "")
    assert result.err == "Error: stdin could not be read: Bad file descriptor; give a file of UTF-8 text.\n"


def test_a_command_that_reads_nothing_does_not_mind_a_closed_stdin(bigram: Path) -> None:
    assert run(["generate", str(bigram), "-p", "a", "-n", "3", "--temp", "0"], "<&-") == Result(
        0, "bcd\n", ""
    )
