"""``gpt-onnx export --dry-run`` as a user types it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpt_onnx.checkpoint import refusals
from gpt_onnx.checkpoint.readers import READERS, own
from gpt_onnx.cli._group import cli

SHIPPED = Path(__file__).parents[2] / "models" / "sotu"
TEMPLATE = 'n_head = "?"  # how many?\n'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["export", *arguments])


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own checkpoints do not tell their configuration."""
    texts: dict[Path | None, str] = {None: TEMPLATE}
    reader = dataclasses.replace(
        own.READER, template=lambda path, options: texts.get(options.config, "n_head = 4\n")
    )
    monkeypatch.setattr(refusals, "READERS", (*READERS[:-1], reader))


def test_it_says_what_would_be_made_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(str(SHIPPED), "--dry-run")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "source         sotu: gpt-onnx checkpoint" in lines
    assert "parameters     5,783,040" in lines
    assert "bundle         sotu-onnx, target cpu, dynamic, check standard" in lines
    fp32 = next(line for line in lines if line.startswith("fp32"))
    assert fp32.split() == ["fp32", "23.1", "MB", "12,288", "B", "6.3", "MB", "yes"]
    assert sum("no: an estimate" in line for line in lines) == 1  # fp16
    assert all(line == line.rstrip() for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_json_is_the_whole_plan() -> None:
    result = run(str(SHIPPED), "--dry-run", "--json", "-o", "there", "--target", "portable")
    told = json.loads(result.stdout)
    assert (told["path"], told["target"], told["config"]["n_kv_head"]) == ("there", "portable", 4)
    fp32 = told["precisions"][0]
    assert fp32["written"]
    assert 4 * 5_783_040 <= fp32["weights_bytes"] <= 1.01 * 4 * 5_783_040  # a hundredth is padding, at most


def test_it_says_how_weights_become_integers_and_what_text_is_read(tmp_path: Path) -> None:
    lines = run(str(SHIPPED), "--dry-run", "--precision", "int4").stdout.splitlines()
    assert "integers       gptq, blocks of 128, head int8, accuracy level 4" in lines
    assert "text           calibrates and measures with the public addresses that ship" in lines
    (tmp_path / "mine.txt").write_text("My fellow citizens. " * 8000)
    options = ("--precision", "int8", "--head-precision", "fp32", "--block-size", "64")
    result = run(str(SHIPPED), "--dry-run", "--json", *options, "--calibration", str(tmp_path / "mine.txt"))
    told = json.loads(result.stdout)
    assert told["integers"] == {
        "quantizer": "rtn",
        "head_precision": "fp32",
        "block_size": 64,
        "accuracy_level": 4,
        "reads_text": False,
    }
    assert told["text"] == "mine.txt"
    told = json.loads(run(str(SHIPPED), "--dry-run", "--json").stdout)
    assert (told["integers"], told["text"]) == (None, None)


@pytest.mark.usefixtures("asking")
def test_open_questions_go_to_stdout_and_what_to_do_to_stderr() -> None:
    result = run(str(SHIPPED), "--dry-run")
    assert result.exit_code == 0
    assert result.stdout == TEMPLATE
    assert "give it with --config FILE" in result.stderr
    assert json.loads(run(str(SHIPPED), "--dry-run", "--json").stdout) == {"config_template": TEMPLATE}


@pytest.mark.usefixtures("asking")
def test_answered_questions_are_not_asked_again(tmp_path: Path) -> None:
    (tmp_path / "gpt.toml").write_text("n_head = 4\n")
    result = run(str(SHIPPED), "--dry-run", "--config", str(tmp_path / "gpt.toml"))
    assert result.exit_code == 1  # the reader itself has no use for it
    assert "tells its own configuration" in str(result.exception)


def test_a_source_of_no_kind_is_told_with_the_kinds(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no model")
    result = run(str(tmp_path / "notes.txt"), "--dry-run")
    assert result.exit_code == 1
    assert "is of no known kind; a checkpoint is " in str(result.exception)
