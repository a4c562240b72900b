"""A path that is no source, but beside, above or made of one: what to name is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint import read_checkpoint, write_checkpoint
from gpt_onnx.checkpoint.convert import convert_checkpoint
from gpt_onnx.checkpoint.refusals import ENTRIES
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, GptOnnxError, InputError
from gpt_onnx.export import ExportOptions, config_template, plan_export
from gpt_onnx.model import GPT

CONFIG = GPTConfig(
    vocab_size=20,
    context_length=8,
    n_embd=8,
    n_layer=1,
    n_head=2,
    position="learned",
    attention_scale="head_size",
    qkv_bias=True,
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "own", CONFIG, GPT(CONFIG).state_dict())
    return tmp_path / "own"


@pytest.fixture
def theirs(own: Path) -> Path:
    convert_checkpoint(own, own.with_name("my-gpt2"), to="huggingface")
    return own.with_name("my-gpt2")


def said(path: Path | str) -> str:
    """Return what is said of a path as a checkpoint, and check that export says it in the same words."""
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    with pytest.raises(CheckpointError) as again:
        config_template(path, ExportOptions())
    assert str(again.value).partition(";")[0] == str(caught.value).partition(";")[0]
    return str(caught.value)


def test_a_bundle_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": "gpt-onnx", "format_version": 1}')
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert said(tmp_path) == (
        f"{tmp_path} is a bundle that gpt-onnx wrote, which is a result and no source; name the checkpoint "
        "that it was made from."
    )


@pytest.mark.parametrize("text", ['{"format": "other"}', "[]", "{", '{"format": ["gpt-onnx"]}'])
def test_another_manifest_is_no_bundle(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert "has no config.json" in said(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "generation_config.json"])
def test_a_file_of_a_hugging_face_folder_is_told_its_folder(theirs: Path, name: str) -> None:
    (theirs / "generation_config.json").write_text("{}")
    assert f"is one file of a Hugging Face folder; name the folder, {theirs}" in said(theirs / name)


@pytest.mark.parametrize(
    "name",
    [
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model-00002-of-00002.bin",
        "pytorch_model.bin.index.json",
    ],
)
def test_a_shard_or_an_index_is_told_its_folder(theirs: Path, name: str) -> None:
    (theirs / "model.safetensors").rename(theirs / name)
    assert f"name the folder, {theirs}" in said(theirs / name)


def test_a_file_of_our_own_checkpoint_is_told_its_folder(own: Path) -> None:
    assert f"is one file of a gpt-onnx checkpoint; name the folder, {own}, or describe" in said(
        own / "model.safetensors"
    )


def test_a_file_that_is_described_is_read_as_tensors(own: Path, theirs: Path) -> None:
    first = read_checkpoint(own)
    read = read_checkpoint(theirs / "model.safetensors", config=own / "config.json")
    assert read.kind == "state dict"
    np.testing.assert_array_equal(read.numpy("wte.weight"), first.numpy("wte.weight"))


def test_a_file_of_weights_alone_is_no_part_of_a_folder(theirs: Path) -> None:
    (theirs / "config.json").unlink()
    with pytest.raises(InputError, match="--config"):
        read_checkpoint(theirs / "model.safetensors")


def test_other_files_beside_a_config_are_read(own: Path) -> None:
    torch.save(GPT(CONFIG).state_dict(), own / "mine.pt")
    with pytest.raises(GptOnnxError, match="activation"):
        read_checkpoint(own / "mine.pt")


def test_a_folder_above_a_trainers_is_told_the_newest(theirs: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "out"
    for step in (500, 1000):
        convert_checkpoint(theirs, out / f"checkpoint-{step}")
    newest, older = out / "checkpoint-1000", out / "checkpoint-500"
    assert f"{out} is no checkpoint, but holds checkpoint-1000 (gpt-onnx checkpoint)" in said(out)
    assert f": name {newest} or {older};" in said(out)
    assert f"but holds out/checkpoint-1000 (gpt-onnx checkpoint): name {newest} or" in said(out.parent)


def test_deeper_folders_and_links_are_not_looked_at(own: Path, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    own.rename(deep / "own")
    assert f"{tmp_path / 'a'} has no config.json" in said(tmp_path / "a")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "gpt").symlink_to(deep / "own")
    (tmp_path / "links" / "around").symlink_to(tmp_path)
    assert "has no config.json" in said(tmp_path / "links")


def test_the_look_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    monkeypatch.setattr("gpt_onnx.checkpoint.refusals.recogniser", looked.append)
    for number in range(3):
        (tmp_path / "many" / f"f{number}").mkdir(parents=True)
        for other in range(ENTRIES):
            (tmp_path / "many" / f"f{number}" / f"{other}").mkdir()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        read_checkpoint(tmp_path / "many")
    assert len(set(looked) - {tmp_path / "many"}) == ENTRIES


@pytest.mark.parametrize("name", ["gpt2", "meta-llama/Llama-3.2-1B"])
def test_a_name_of_a_hub_is_told_that_nothing_is_downloaded(name: str) -> None:
    hint = f"{name} does not exist, and nothing is downloaded: if this is the name of a model on a hub"
    assert said(name).startswith(hint)
    with pytest.raises(CheckpointError, match=re.escape(hint)):
        plan_export(name)


@pytest.mark.parametrize("name", ["ckpt.pt", "a/b/c", "tests/gpt3", "/gpt2"])
def test_other_paths_are_no_names_of_a_hub(name: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    Path("tests").mkdir()
    assert "downloaded" not in said(name)


def test_a_folder_without_weights_gets_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 9}))
    with pytest.raises(
        (CheckpointError, InputError), match=r"has no weights: .* write the whole folder with"
    ):
        read_checkpoint(tmp_path)
