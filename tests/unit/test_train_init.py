"""Training that starts from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpt_onnx.checkpoint import load_model, read_checkpoint, write_checkpoint
from gpt_onnx.errors import InputError
from gpt_onnx.train import TrainOptions, train

TOML = "vocab_size = 300\ncontext_length = 16\nn_embd = 16\nn_layer = 1\nn_head = 2\n"
TEXT = "the quick brown fox jumps over the lazy dog and runs away. " * 60
OTHER = "a slow green turtle walks under the busy bridge and sleeps. " * 60


@pytest.fixture
def first(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(TOML)
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "other.txt").write_text(OTHER)
    _train(tmp_path, tmp_path / "first", config=str(tmp_path / "tiny.toml"), steps=20)
    return tmp_path / "first"


def _train(folder: Path, output: Path, text: str = "text.txt", **changes: object) -> None:
    values: dict[str, object] = {
        "corpus": (folder / text,),
        "validation": (folder / text,),
        "output": output,
        "batch_size": 4,
        "learning_rate": 1e-2,
    }
    assert train(TrainOptions(**(values | changes))) is not None  # type: ignore[arg-type]


def test_it_starts_from_the_checkpoints_weights(first: Path, tmp_path: Path) -> None:
    _train(tmp_path, tmp_path / "second", init=first, steps=1, learning_rate=1e-12)
    before, after = load_model(read_checkpoint(first)), load_model(read_checkpoint(tmp_path / "second"))
    for name, weight in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], weight, rtol=1e-5, atol=1e-7)


def test_it_keeps_tokenizer_and_configuration(first: Path, tmp_path: Path) -> None:
    _train(tmp_path, tmp_path / "second", text="other.txt", init=first, steps=2)
    old, new = read_checkpoint(first), read_checkpoint(tmp_path / "second")
    assert new.config == old.config
    assert new.tokenizer == old.tokenizer


def test_a_checkpoint_without_a_tokenizer_is_refused(first: Path, tmp_path: Path) -> None:
    model = load_model(read_checkpoint(first))
    write_checkpoint(tmp_path / "bare", model.config, model.state_dict())
    with pytest.raises(InputError, match="has no tokenizer"):
        _train(tmp_path, tmp_path / "second", init=tmp_path / "bare", steps=1)
