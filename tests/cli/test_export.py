"""``gpt-onnx export`` as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.cli.export import default_name
from gpt_onnx.model import GPT


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpt_onnx", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_an_export_prints_the_table_and_one_line(checkpoint: Path, tmp_path: Path) -> None:
    result = run("export", str(checkpoint), "--check", "quick", "-o", str(tmp_path / "b"))
    assert result.returncode == 0, result.stderr
    assert "checked against PyTorch" in result.stdout
    assert ", checked (target cpu, dynamic, fp32)." in result.stdout
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["checked"] is True


def test_json_is_one_object_on_stdout(checkpoint: Path, tmp_path: Path) -> None:
    result = run("export", str(checkpoint), "--check", "none", "--json", "-o", str(tmp_path / "b"))
    described = json.loads(result.stdout)
    assert described["checked"] is False
    assert described["parameters"] == GPT(read_checkpoint(checkpoint).config).parameter_count()
    assert described["payload_bytes"] == 4 * described["parameters"]


def test_an_unchecked_bundle_says_so(checkpoint: Path, tmp_path: Path) -> None:
    result = run("export", str(checkpoint), "--check", "none", "-o", str(tmp_path / "b"))
    assert "NOT checked" in result.stdout
    assert "NOT compared" in (tmp_path / "b" / "README.md").read_text()


def test_the_output_is_named_after_the_source(checkpoint: Path, tmp_path: Path) -> None:
    result = run("export", str(checkpoint), "--check", "none", "--no-kv-cache", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "tiny-onnx" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("source", "name"), [("a/b/mine", "mine-onnx"), ("code/mygpt.py:build", "mygpt-onnx"), ("x/", "x-onnx")]
)
def test_default_names(source: str, name: str) -> None:
    assert default_name(source) == name


def test_a_file_gives_its_name_without_its_ending(tmp_path: Path) -> None:
    for ending in ("pt", "pth", "bin", "gguf", "safetensors", "npz"):
        (tmp_path / f"gpt-1.5.{ending}").write_bytes(b"")
        assert default_name(str(tmp_path / f"gpt-1.5.{ending}")) == "gpt-1.5-onnx"
    (tmp_path / "v1.5").mkdir()
    assert default_name(str(tmp_path / "v1.5")) == "v1.5-onnx"


def test_running_a_file_of_code_is_said(tmp_path: Path) -> None:
    code = "import torch\n\ndef build():\n    torch.manual_seed(0)\n    return torch.nn.Embedding(7, 7)\n"
    (tmp_path / "mine.py").write_text(code)
    result = run("export", f"{tmp_path}/mine.py:build", "--check", "quick", "-o", str(tmp_path / "b"))
    assert result.returncode == 0, result.stderr
    assert f"Running the code in {tmp_path}/mine.py." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--seq-len", "0"], 2, "neither 'dynamic' nor an integer"),
        (["--seq-len", "-3"], 2, "neither 'dynamic' nor an integer"),
        (["--seq-len", "many"], 2, "neither 'dynamic' nor an integer"),
        (["--seq-len", "1_0"], 2, "neither 'dynamic' nor an integer"),
        (["--seq-len", "\u0663"], 2, "neither 'dynamic' nor an integer"),
        (["--seq-len", "99999999999999999999"], 2, "can be frozen at no more than 1048576"),
        (["--batch-size", "9223372036854775807"], 2, "can be frozen at no more than 65536"),
        (["--target", "toaster"], 2, "toaster"),
        (["--reference", "nowhere.npz", "--check", "quick"], 1, "nowhere.npz"),
    ],
)
def test_bad_options_are_one_clear_message(
    checkpoint: Path, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    result = run("export", str(checkpoint), "-o", str(tmp_path / "b"), *arguments)
    assert result.returncode == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", ["mine.py", "mine.py:", "absent.py:build", "absent"])
def test_nothing_is_said_to_run_that_does_not(tmp_path: Path, source: str) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit\n")
    result = run("export", source, cwd=tmp_path)
    assert result.returncode == 1
    assert "FILE.py:NAME" in result.stderr
    assert "Running" not in result.stderr


def test_what_a_module_prints_leaves_json_alone(tmp_path: Path) -> None:
    code = """
import torch

class Chatty(torch.nn.Embedding):
    def forward(self, ids):
        print("chatter")
        x = super().forward(ids)
        return x + x.mean(1, keepdim=True)

def build():
    print("building")
    return Chatty(7, 7)
"""
    (tmp_path / "mine.py").write_text(code)
    result = run("export", "mine.py:build", "--check", "quick", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["notes"][0].startswith("The module is not causal")
    assert {"building", "chatter"} <= set(result.stderr.split())


def test_an_existing_output_is_kept(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("precious")
    result = run("export", str(checkpoint), "--check", "none", "-o", str(tmp_path / "b"), "--overwrite")
    assert result.returncode == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b" / "mine.txt").read_text() == "precious"


def test_an_unknown_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    result = run("-q", "export", str(tmp_path / "nowhere"), "-o", str(tmp_path / "b"))
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ")
    assert "nowhere" in result.stderr
    assert result.stderr.count("\n") == 1
