"""The group of commands: help, exit codes, and one sentence for each mistake."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_onnx import __version__
from gpt_onnx.cli import main
from gpt_onnx.cli._group import SECTIONS
from gpt_onnx.errors import GptOnnxError, ParityError
from gpt_onnx.extras import missing_extra

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
from gpt_onnx.cli import main
main({arguments})
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpt_onnx", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_without(blocked: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    program = BLOCK.format(blocked=blocked, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert all(name in result.stdout for names in SECTIONS.values() for name in names)


def test_version_is_the_packages_own() -> None:
    assert run("--version").stdout.strip() == f"gpt-onnx, version {__version__}"


@pytest.mark.parametrize("name", [name for names in SECTIONS.values() for name in names])
def test_each_commands_help_imports_nothing_heavy(name: str) -> None:
    heavy = {"torch", "onnx", "onnxruntime", "numpy", "tokenizers", "rich", "safetensors"}
    result = run_without(heavy, name, "-h")
    assert result.returncode == 0, result.stderr
    assert "Usage: gpt-onnx" in result.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    result = run("exprot")
    assert result.returncode == 2
    assert "exprot" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_extra_is_one_sentence_with_the_pip_command() -> None:
    result = run_without({"torch"}, "-q", "export", "anything", "-o", "nowhere")
    assert result.returncode == 1
    assert result.stderr == (
        "Error: torch is not installed, and this needs it; run: pip install 'gpt-onnx[cpu,export]'\n"
    )


def test_a_package_that_no_extra_brings_is_not_explained_away() -> None:
    assert missing_extra(ImportError("no", name="somebody_elses")) is None


def test_a_message_goes_to_stderr_with_the_errors_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ParityError("the numbers differ")

    monkeypatch.setattr("gpt_onnx.export.export_bundle", fail)
    with pytest.raises(SystemExit) as exit_info:
        main(["export", str(tmp_path), "-o", str(tmp_path / "b")])
    assert exit_info.value.code == ParityError.exit_code == 3
    assert capsys.readouterr().err.endswith("Error: the numbers differ\n")


def test_an_interrupt_is_said_and_told_to_the_shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gpt_onnx.export.export_bundle", interrupt)
    with pytest.raises(SystemExit) as exit_info:
        main(["export", str(tmp_path), "-o", str(tmp_path / "b")])
    assert exit_info.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


def test_every_error_but_parity_has_exit_code_1() -> None:
    codes = {kind.__name__: kind.exit_code for kind in GptOnnxError.__subclasses__()}
    assert {name for name, code in codes.items() if code != 1} == {"ParityError"}


def exported_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, action: Callable[[], None]) -> object:
    """Run ``export`` with ``action`` in place of the work, and return the exit code."""
    monkeypatch.setattr("gpt_onnx.export.export_bundle", lambda *args, **kwargs: action())
    with pytest.raises(SystemExit) as exit_info:
        main(["export", str(tmp_path), "-o", str(tmp_path / "b")])
    return exit_info.value.code


@pytest.mark.parametrize("error", [ImportError("initialization failed"), ParityError("numpy failed")])
def test_what_an_interrupted_import_raises_is_an_interrupt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def swallow() -> None:  # as an extension module does
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise error

    before = signal.getsignal(signal.SIGINT)
    assert exported_with(monkeypatch, tmp_path, swallow) == 130
    assert capsys.readouterr().err.endswith("Error: interrupted; nothing was left half-written.\n")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "could not be written: No space left on device"),
        (PermissionError(13, "Permission denied", "/there"), "Error: /there: Permission denied."),
        (MemoryError(), "the memory does not suffice"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception,
    message: str,
) -> None:
    def fail() -> None:
        raise error

    assert exported_with(monkeypatch, tmp_path, fail) == 1
    assert message in capsys.readouterr().err


def test_a_fault_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gpt_onnx.export.export_bundle", lambda *args, **kwargs: fail())
    with pytest.raises(ZeroDivisionError):
        main(["export", str(tmp_path), "-o", str(tmp_path / "b")])


SLOW_IMPORT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from gpt_onnx.cli import main
main({arguments})
"""


@pytest.mark.parametrize("name", ["click", "gpt_onnx.cli._group", "gpt_onnx.cli._console", "rich.console"])
def test_ctrl_c_while_the_command_line_is_imported_is_an_interrupt(name: str, bigram: Path) -> None:
    program = SLOW_IMPORT.format(name=name, arguments=["inspect", str(bigram)])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.lstrip("\n") == "Error: interrupted; nothing was left half-written.\n"


@pytest.mark.parametrize("name", ["numpy", "onnxruntime", "onnxruntime.capi", "tokenizers"])
def test_ctrl_c_while_a_package_is_imported_is_not_a_missing_package(name: str, bigram: Path) -> None:
    program = SLOW_IMPORT.format(name=name, arguments=["generate", str(bigram), "-p", "a"])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.lstrip("\n") == "Error: interrupted; nothing was left half-written.\n"


def test_the_entry_point_imports_nothing_of_weight() -> None:
    program = "import gpt_onnx.cli, sys; print(*[n for n in ('click', 'numpy', 'rich') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
