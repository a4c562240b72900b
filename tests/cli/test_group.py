"""The group of commands: help, exit codes, and one sentence for each mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpt_onnx import __version__
from gpt_onnx.cli._extras import missing_extra
from gpt_onnx.cli._group import SECTIONS, main
from gpt_onnx.errors import GptOnnxError, ParityError

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
    result = run_without({"torch"}, "export", "anything", "-o", "nowhere")
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
