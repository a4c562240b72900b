"""``gpt-onnx train`` as a user types it."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.cli.train import _progress_display
from gpt_onnx.train import TrainProgress

TOML = "vocab_size = 300\ncontext_length = 16\nn_embd = 16\nn_layer = 1\nn_head = 2\ndropout = 0.1\n"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    for number in range(4):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"the state of the union is {number} " * 40)
    (tmp_path / "tiny.toml").write_text(TOML)
    return tmp_path


def arguments(texts: Path, output: str, *more: str) -> list[str]:
    fixed = ["--config", str(texts / "tiny.toml"), "--batch-size", "4", "-t", "1"]
    return ["-m", "gpt_onnx", "train", str(texts / "texts"), "-o", str(texts / output), *fixed, *more]


def run(texts: Path, output: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments(texts, output, *more)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_says_how_it_goes_on_stderr_and_what_came_of_it_on_stdout(texts: Path) -> None:
    result = run(texts, "gpt", "--steps", "20", "--validate-every", "10", "-s", "1")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("step")]
    assert [line.split(":")[0] for line in lines] == ["step 10/20", "step 20/20"]
    assert "bits per byte on" in result.stdout
    assert read_checkpoint(texts / "gpt").config.vocab_size <= 300


def test_json_is_one_object_and_a_drawn_seed_is_printed(texts: Path) -> None:
    result = run(texts, "gpt", "--tokens", "640", "--json", "--store", "fp16")
    report = json.loads(result.stdout)
    assert (report["steps"], report["tokens_seen"]) == (10, 640)
    assert result.stderr.startswith("seed: ")


@pytest.mark.slow
def test_ctrl_c_stops_the_run_and_resume_goes_on_bit_for_bit(texts: Path) -> None:
    options = ("--steps", "1500", "--validate-every", "250")
    process = subprocess.Popen(
        [sys.executable, *arguments(texts, "parts", *options)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    seed = process.stderr.readline().split()[1]
    assert next(line for line in process.stderr if line.startswith("step")).startswith("step 250/1500")
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, rest = process.communicate(timeout=30)
    assert time.monotonic() - begun < 10
    assert process.returncode == 130, rest
    assert "the same command with --resume goes on" in rest
    assert run(texts, "parts", *options, "--resume").returncode == 0
    assert run(texts, "whole", *options, "-s", seed).returncode == 0
    parts, whole = (load_model(read_checkpoint(texts / name)).state_dict() for name in ("parts", "whole"))
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--steps", "0"), 2, "0 is not in the range x>=1"),
        (("--steps", "5", "--tokens", "5"), 2, "more than one of steps, tokens and epochs is given"),
        (("--learning-rate", "-1"), 2, "-1.0 is not in the range x>0"),
        (("--validation", "nowhere"), 1, "nowhere does not exist"),
        (("--dropout", "2"), 2, "2.0 is not in the range 0<=x<1"),
        (("--config", "nothing"), 1, "'nothing' is neither a file nor one of"),
        (("--resume",), 1, "has nothing to resume"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    texts: Path, more: tuple[str, ...], code: int, message: str
) -> None:
    result = run(texts, "gpt", *more)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (texts / "gpt").exists()


def test_an_output_that_exists_is_left_alone(texts: Path) -> None:
    result = run(texts, "texts", "--steps", "5")
    assert result.returncode == 1
    assert "exists; choose a new folder" in result.stderr
    assert len(list((texts / "texts").iterdir())) == 4


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def progress(step: int, validation_loss: float | None) -> TrainProgress:
    bits = None if validation_loss is None else 2.0
    return TrainProgress(
        step=step,
        total_steps=10,
        loss=4.5,
        tokens_per_s=1234.0,
        validation_loss=validation_loss,
        bits_per_byte=bits,
    )


def test_a_terminal_gets_a_bar_and_a_line_for_each_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with _progress_display() as show:
        show(progress(5, 4.25))
        show(progress(10, None))
    shown = terminal.getvalue()
    assert "4.2500" in shown
    assert "1,234" in shown
    assert "10/10" in shown
    assert shown.count("bits per byte") == 1


def test_a_file_gets_a_line_for_each_validation_and_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with _progress_display() as show:
        show(progress(5, 4.25))
        show(progress(10, None))
    expected = (
        "step 5/10: training loss 4.5000, validation loss 4.2500, 2.0000 bits per byte, 1,234 tokens/s\n"
    )
    assert capsys.readouterr().err == expected
