"""An export that fails publishes nothing, and says why in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.checkpoint.readers import READERS
from gpt_onnx.errors import (
    CheckpointError,
    ConfigError,
    ExportError,
    GptOnnxError,
    InputError,
    ParityError,
)
from gpt_onnx.export import export_bundle
from gpt_onnx.export import source as source_module


@pytest.fixture
def checkpoint(tmp_path: Path, make_gpt: Any) -> Path:
    gpt = make_gpt(n_layer=1)
    write_checkpoint(tmp_path / "model", gpt.config, gpt.state_dict())
    return tmp_path / "model"


def _refused(kind: type[GptOnnxError], source: Any, folder: Path, **options: Any) -> str:
    """Export to a new folder, see it refused and nothing made, and return what was said."""
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(kind) as told:
        export_bundle(source, folder / "bundle", **({"check": "none"} | options))
    assert sorted(path.name for path in folder.iterdir()) == before
    assert "\n" not in str(told.value)
    return str(told.value)


class ByLength(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(31, 31)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.table(ids)
        return logits * 2 if ids.shape[1] > 20 else logits


def test_a_branch_on_the_length_that_was_traced_away_is_refused_with_its_cause(tmp_path: Path) -> None:
    told = _refused(ParityError, ByLength().eval(), tmp_path, check="quick")
    assert "cases differ from by_length" in told
    assert told.endswith("let tensors decide (torch.where), or freeze the length with --seq-len.")


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    assert "does not exist" in _refused(CheckpointError, tmp_path / "absent", tmp_path)


def test_no_source_outside_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "find_shipped", lambda: None)
    text = _refused(InputError, None, tmp_path)
    assert " or FILE.py:NAME (a torch.nn.Module, or a function that returns one)." in text
    assert all(reader.summary in text for reader in READERS)


@pytest.mark.parametrize("value", [0, -4, "many"])
@pytest.mark.parametrize("name", ["seq_len", "batch_size"])
def test_a_size_out_of_range(checkpoint: Path, tmp_path: Path, name: str, value: Any) -> None:
    assert f"{name} is {value!r}" in _refused(ConfigError, checkpoint, tmp_path, **{name: value})


def test_an_unknown_target(checkpoint: Path, tmp_path: Path) -> None:
    assert "known are cpu, web, portable" in _refused(ConfigError, checkpoint, tmp_path, target="npu")


@pytest.mark.parametrize("options", [{}, {"kv_cache": False}])
def test_a_length_beyond_a_learned_table(tmp_path: Path, make_gpt: Any, options: Any) -> None:
    text = _refused(ExportError, make_gpt(position="learned"), tmp_path, seq_len=65, **options)
    assert text == ("--seq-len is 65 and the model's positions end at 64; freeze at most 64, or use dynamic.")


def _spoil(checkpoint: Path, change: Any) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    change(tensors)
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})


def test_weights_that_are_not_finite(checkpoint: Path, tmp_path: Path) -> None:
    """Found while the weights are written, when the graphs have been made already."""

    def spoil(tensors: dict[str, np.ndarray]) -> None:
        tensors["h.0.mlp.c_fc.weight"][1, 2] = np.nan

    _spoil(checkpoint, spoil)
    text = _refused(CheckpointError, checkpoint, tmp_path)
    assert "h.0.mlp.c_fc.weight has NaN or infinity in 1 of 5184 places" in text


def test_a_weight_that_is_missing(checkpoint: Path, tmp_path: Path) -> None:
    _spoil(checkpoint, lambda tensors: tensors.pop("ln_f.bias"))
    assert "ln_f.bias" in _refused(CheckpointError, checkpoint, tmp_path)


def test_a_weight_of_another_shape(checkpoint: Path, tmp_path: Path) -> None:
    _spoil(checkpoint, lambda tensors: tensors.update(wte=np.zeros(3)) or tensors.pop("wte.weight"))
    assert "wte" in _refused(CheckpointError, checkpoint, tmp_path)


def test_a_configuration_that_cannot_be_read(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "config.json").write_text("{")
    assert "config.json could not be read as JSON" in _refused(ConfigError, checkpoint, tmp_path)


def test_a_truncated_file(checkpoint: Path, tmp_path: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "model.safetensors" in _refused(CheckpointError, checkpoint, tmp_path)


def test_a_tokenizer_with_more_ids_than_the_model(tmp_path: Path, make_gpt: Any) -> None:
    vocab = {f"t{number}": number for number in range(200)}
    definition = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    text = _refused(InputError, make_gpt(), tmp_path, tokenizer=tmp_path / "tokenizer.json")
    assert "has ids up to 199 and the model's vocabulary has 89 rows" in text


@pytest.mark.parametrize("step", ["trace", "write"])
def test_ctrl_c_leaves_nothing(checkpoint: Path, tmp_path: Path, step: str) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        if name == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_bundle(checkpoint, tmp_path / "bundle", check="none", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_failed_overwrite_leaves_the_old_bundle(exported: Any, tmp_path: Path, make_gpt: Any) -> None:
    import shutil

    old = tmp_path / "bundle"
    shutil.copytree(exported().path, old)
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    gpt = make_gpt()
    with torch.no_grad():
        gpt.wte.weight[0, 0] = float("nan")
    with pytest.raises(CheckpointError):
        export_bundle(gpt, old, check="none", overwrite=True)
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_an_unchecked_bundle_says_so_everywhere(exported: Any) -> None:
    report = exported()
    assert report.gate is None
    assert not report.manifest.checked
    assert "NOT compared" in (report.path / "README.md").read_text()
    assert not (report.path / "parity.json").exists()


@pytest.mark.parametrize("value", ["", None, 3, ["a"]])
def test_a_destination_that_is_no_path(checkpoint: Path, value: Any) -> None:
    with pytest.raises(InputError, match=r"the destination is .*; name the folder to make"):
        export_bundle(checkpoint, value, check="none")


@pytest.mark.parametrize("value", [3, b"sotu", ""])
def test_a_source_of_no_known_kind(tmp_path: Path, value: Any) -> None:
    assert " or FILE.py:NAME (a torch.nn.Module" in _refused(InputError, value, tmp_path)


def test_a_reference_that_is_not_there_is_told_before_any_work(tmp_path: Path) -> None:
    text = _refused(InputError, 3, tmp_path, check="quick", reference="absent.npz")
    assert text.startswith("the reference file absent.npz does not exist")


def test_an_option_that_is_unknown(checkpoint: Path, tmp_path: Path) -> None:
    assert _refused(ConfigError, checkpoint, tmp_path, lenght=3).startswith("'lenght' is no option")


BAD_TOKENIZERS: dict[str, dict[str, Any]] = {
    "regex": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a|a?)+$"}, "behavior": "Isolated"}},
    "wordpiece": {"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a"}},
    "unknown": {"model": {"type": "Mine", "vocab": {"a": 0}}},
    "dropout": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.9}},
    "added": {"added_tokens": [{"id": 0, "content": "a", "special": "so"}]},
}


@pytest.mark.parametrize("fault", BAD_TOKENIZERS)
def test_a_tokenizer_that_the_runtime_would_refuse(
    checkpoint: Path, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    (tmp_path / "t").mkdir()
    (tmp_path / "t/tokenizer.json").write_text(json.dumps(good | BAD_TOKENIZERS[fault]))
    monkeypatch.setattr("gpt_onnx.export.pipeline.write_graphs", lambda *_: pytest.fail("traced"))
    text = _refused(InputError, checkpoint, tmp_path, tokenizer=tmp_path / "t")
    assert text.startswith("the runtime would refuse this tokenizer: ")
    assert "--tokenizer" in text
