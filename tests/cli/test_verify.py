"""``gpt-onnx verify``: answers, exit codes, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.bundle import Manifest
from gpt_onnx.cli import main
from gpt_onnx.cli.verify import caveats
from tests.resealing import reseal_with_evidence


def run(*arguments: object) -> int:
    """Run the command line and return its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main(["verify", *map(str, arguments)])
    code = exit_.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture(scope="module")
def checked(tiny_bundle: Any) -> Path:
    path: Path = tiny_bundle(check="quick").path
    return path


def test_a_right_bundle_is_said_to_be_right(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checked, "-t", 1) == 0
    out, err = capsys.readouterr()
    assert "greedy tokens agree with PyTorch on cpu" in out
    assert "original program" not in out  # a GPT in memory is that program
    assert err == ""


def test_json_has_every_case(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checked, "-t", 1, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["passed"], found["checked"], found["provider"]) == (True, True, "cpu")
    assert all(case["passed"] and case["max_ratio"] <= 1 for case in found["cases"])
    assert found["greedy"]["passed"]
    assert found["against"] is None


def test_a_reading_of_somebodys_checkpoint_is_said_to_be_no_more(
    make_manifest: Callable[..., Manifest],
) -> None:
    (line,) = caveats(make_manifest(checked=True, compared_with_original=False))
    assert line.startswith("It was not compared with the original program: export it again with --reference")
    assert caveats(make_manifest(checked=True, compared_with_original=True)) == []


def test_files_only_needs_no_runtime(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checked, "--files-only") == 0
    assert "the numbers were not computed" in capsys.readouterr().out


def test_a_bundle_that_was_never_checked_is_said_to_be_so(
    tiny_bundle: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny_bundle().path, "-t", 1) == 0
    assert "was never compared with its model" in capsys.readouterr().out


def test_numbers_that_differ_are_exit_code_3(
    checked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copytree(checked, tmp_path / "copy"))
    data = path / "onnx/model.onnx_data"
    weights = np.fromfile(data, np.float32)
    weights[np.abs(weights).argmax()] *= 1.01
    weights.tofile(data)
    reseal_with_evidence(path)
    assert run(path, "-t", 1) == 3
    out, err = capsys.readouterr()
    assert "agree" not in out
    assert "stored sequences differ on cpu" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("damage", ["missing", "changed", "not a bundle", "not there"])
def test_a_damaged_bundle_is_exit_code_1(
    checked: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "copy"
    if damage == "not a bundle":
        path.mkdir()
    elif damage != "not there":
        shutil.copytree(checked, path)
        config = path / "config.json"
        config.unlink() if damage == "missing" else config.write_text(config.read_text().replace("1", "2"))
    assert run(path) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("x", "--files-only", "--against", "y"),
        ("x", "--provider", "gpu"),
        ("x", "-t", "0"),
        ("x", "--level", "no"),
        ("x", "--level", "quick"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert "Usage: gpt-onnx verify" in capsys.readouterr().err


def test_cuda_where_there_is_none_is_exit_code_1(checked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(checked, "--provider", "cuda") == 1
    assert "--target portable" in capsys.readouterr().err


@pytest.mark.parametrize("vocab_size", [12, 300])
def test_against_another_vocabulary_is_one_sentence(
    tiny_bundle: Any, tmp_path: Path, vocab_size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from gpt_onnx.checkpoint import write_checkpoint
    from gpt_onnx.model import GPT

    tiny, torch_state = tiny_bundle(check="quick"), torch.random.get_rng_state()
    config = tiny.gpt.config.replace(vocab_size=vocab_size)
    write_checkpoint(tmp_path / "other", config, GPT(config).state_dict())
    torch.random.set_rng_state(torch_state)
    assert run(tiny.path, "-t", 1, "--against", tmp_path / "other", "--level", "quick") == 1
    err = capsys.readouterr().err
    assert f"a vocabulary of 97 tokens and GPT one of {vocab_size}; compare" in err
    assert err.count("\n") == 1


def test_against_a_model_of_fewer_positions_is_one_sentence(
    tiny_bundle: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpt_onnx.checkpoint import write_checkpoint
    from gpt_onnx.model import GPT

    tiny = tiny_bundle(check="quick")
    config = tiny.gpt.config.replace(position="learned", context_length=4)
    write_checkpoint(tmp_path / "short", config, GPT(config).state_dict())
    assert run(tiny.path, "-t", 1, "--against", tmp_path / "short", "--level", "quick") == 1
    err = capsys.readouterr().err
    assert "GPT does not take all that the bundle takes (" in err
    assert err.endswith("context window is 4); compare the bundle with what it was made from.\n")


def test_against_another_model_is_exit_code_3(
    tiny_bundle: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gpt_onnx.checkpoint import write_checkpoint

    tiny = tiny_bundle(check="quick")
    write_checkpoint(tmp_path / "same", tiny.gpt.config, tiny.gpt.state_dict())
    assert run(tiny.path, "-t", 1, "--against", tmp_path / "same", "--level", "quick") == 0
    assert "compared" in capsys.readouterr().out
    other = tiny_bundle(seed=1).gpt
    write_checkpoint(tmp_path / "other", other.config, other.state_dict())
    assert run(tiny.path, "-t", 1, "--against", tmp_path / "other", "--level", "quick") == 3
    assert "cases differ from" in capsys.readouterr().err


@pytest.mark.parametrize(("precision", "target"), [("int8", "cpu"), ("int4", "portable"), ("fp16", "web")])
def test_a_checked_bundle_of_another_precision_agrees_with_its_source(
    precision: str, target: str, tiny_bundle: Any, tmp_path: Path
) -> None:
    from gpt_onnx.checkpoint import write_checkpoint

    sizes = {"n_embd": 32, "n_head": 2, "head_size": 16}
    tiny = tiny_bundle(target, config=sizes, check="quick", precision=precision)
    write_checkpoint(tmp_path / "source", tiny.gpt.config, tiny.gpt.state_dict())
    assert run(tiny.path, "-t", 1, "--against", tmp_path / "source", "--level", "quick") == 0
