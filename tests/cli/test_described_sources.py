"""Sources that need --config and --names, through every command that takes a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from gpt_onnx.cli._group import cli
from gpt_onnx.config import GPTConfig
from gpt_onnx.eager_contender import load_eager
from gpt_onnx.model import GPT

CONFIG = GPTConfig(vocab_size=61, context_length=32, n_embd=16, n_layer=2, n_head=2, tie_embeddings=False)
THEIRS = {"wte": "Words", "ln_f": "Last", "lm_head": "Out", "h.": "Floors."}


def renamed(name: str) -> str:
    for ours, theirs in THEIRS.items():
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    raise AssertionError(name)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str], GPT]:
    """A state dict under names of its own, the options that describe it, and the model."""
    folder = tmp_path_factory.mktemp("described")
    torch.manual_seed(0)
    gpt = GPT(CONFIG).eval()
    state = gpt.state_dict()
    torch.save({renamed(name): tensor for name, tensor in state.items()}, folder / "mine.pt")
    (folder / "gpt.json").write_text(json.dumps(CONFIG.to_dict()))
    lines = [f'"{renamed(name)}" = "{name}"' for name in state]
    (folder / "names.toml").write_text("\n".join(["[names]", *lines]))
    options = ["--config", str(folder / "gpt.json"), "--names", str(folder / "names.toml")]
    return str(folder / "mine.pt"), options, gpt


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_export_and_verify_take_a_described_source(
    described: tuple[str, list[str], GPT], tmp_path: Path
) -> None:
    source, options, _ = described
    bundle = str(tmp_path / "bundle")
    made = run("export", source, *options, "-o", bundle, "--check", "none")
    assert made.exit_code == 0, made.output
    compared = run("verify", bundle, "--against", source, *options, "--level", "quick", "--json")
    assert compared.exit_code == 0, compared.output
    assert json.loads(compared.stdout)["against"]["passed"]


def test_eager_pytorch_takes_a_described_source(described: tuple[str, list[str], GPT]) -> None:
    source, (_, config, _, names), gpt = described
    eager: Any = load_eager(source, config=config, names=names)
    ids = [[3, 1, 4, 1, 5]]
    with torch.no_grad():
        best = int(gpt(torch.tensor(ids))[0][0, -1].argmax())
    assert eager.start(ids, 8) == [best]


@pytest.mark.parametrize("command", ["verify", "bench"])
@pytest.mark.parametrize("option", ["--config", "--names"])
def test_a_description_without_a_source_is_a_usage_error(command: str, option: str) -> None:
    result = run(command, "bundle", option, "file.toml")
    assert result.exit_code == 2
    assert f"{option} is for the SOURCE of --against" in result.output


def test_convert_takes_a_described_source_and_training_goes_on(
    described: tuple[str, list[str], GPT], tmp_path: Path
) -> None:
    source, options, gpt = described
    shipped = Path(__file__).parents[2] / "models" / "sotu"
    out = str(tmp_path / "ours")
    made = run("convert", source, *options, "-o", out, "--json")
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert (told["path"], told["source"], told["layout"]) == (out, "state dict", "gpt-onnx")
    assert told["parameters"] == gpt.parameter_count()
    again = run("convert", out, "-o", out)
    assert again.exit_code == 1
    assert "is where the source lies" in str(again.exception)
    (tmp_path / "text").mkdir()
    for name in "abc":
        (tmp_path / "text" / f"{name}.txt").write_text("It was so. " * 200)
    wide = CONFIG.replace(vocab_size=4096)
    state = GPT(wide).state_dict()
    torch.save(state, tmp_path / "wide.pt")
    (tmp_path / "wide.json").write_text(json.dumps(wide.to_dict()))
    with_words = run(
        *("convert", str(tmp_path / "wide.pt"), "--config", str(tmp_path / "wide.json")),
        *("--tokenizer", str(shipped), "-o", str(tmp_path / "wide")),
    )
    assert with_words.exit_code == 0, with_words.output
    trained = run(
        *("train", str(tmp_path / "text"), "--init", str(tmp_path / "wide"), "-o", str(tmp_path / "better")),
        *("--steps", "2", "--batch-size", "2", "-s", "1", "--json"),
    )
    assert trained.exit_code == 0, trained.output
    assert json.loads(trained.stdout)["steps"] == 2


def test_convert_takes_no_code(tmp_path: Path) -> None:
    result = run("convert", "mine.py:build", "-o", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert str(result.exception).startswith("mine.py:build is code, which export alone takes and runs")
