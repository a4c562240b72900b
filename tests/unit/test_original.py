"""Whether a checkpoint is the program that was trained, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path

import torch

from gpt_onnx.checkpoint import read_checkpoint, write_checkpoint
from gpt_onnx.checkpoint.convert import convert_checkpoint
from gpt_onnx.checkpoint.layout import WEIGHTS_FILE
from gpt_onnx.checkpoint.safetensors import read_header
from gpt_onnx.config import GPTConfig
from gpt_onnx.export.gate import GptReference
from gpt_onnx.model import GPT
from gpt_onnx.original import original_words

CONFIG = GPTConfig(
    vocab_size=11,
    context_length=8,
    n_embd=8,
    n_layer=1,
    n_head=2,
    position="learned",
    activation="gelu_tanh",
    bias=True,
    qkv_bias=True,
)


def written(folder: Path) -> Path:
    write_checkpoint(folder, CONFIG, GPT(CONFIG).state_dict())
    return folder


def test_the_words_are_one_clause_with_the_remedy() -> None:
    assert original_words(checked=True, compared=True) == "compared with the original program"
    rounded = original_words(checked=True, compared=True, precision="int4")
    assert rounded == "compared with the original program before its weights became int4"
    words = original_words(checked=True, compared=False, precision="int4")
    assert words.startswith("not compared with the original program: ")
    assert "--reference FILE" in words
    assert "--check none" in original_words(checked=False, compared=False)


def test_our_own_checkpoint_is_the_program_that_trained_it(tmp_path: Path) -> None:
    assert read_checkpoint(written(tmp_path / "ours")).is_original


def test_what_was_converted_stays_a_reading_of_another_program(tmp_path: Path) -> None:
    convert_checkpoint(written(tmp_path / "ours"), tmp_path / "theirs", to="huggingface")
    assert not read_checkpoint(tmp_path / "theirs").is_original
    convert_checkpoint(tmp_path / "theirs", tmp_path / "again", to="gpt-onnx")
    assert not read_checkpoint(tmp_path / "again").is_original
    assert "gpt2" in read_header(tmp_path / "again" / WEIGHTS_FILE).metadata["converted_from"]
    convert_checkpoint(tmp_path / "ours", tmp_path / "copied", to="gpt-onnx")
    assert read_checkpoint(tmp_path / "copied").is_original


def test_a_model_in_memory_is_the_program_itself() -> None:
    torch.manual_seed(0)
    assert GptReference(GPT(CONFIG)).is_original
