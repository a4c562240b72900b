"""Real text for the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from gpt_onnx.bundle import open_bundle
from gpt_onnx.export.gate.texts import PARAGRAPHS, texts_at, texts_of


def byte_tokenizer(folder: Path) -> Path:
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    path = folder / "tokenizer.json"
    path.write_text(tokenizer.to_str(), encoding="utf-8")
    return path


def test_paragraphs_become_ids(tmp_path: Path) -> None:
    texts = texts_at(byte_tokenizer(tmp_path))
    assert [len(ids) for ids in texts] == [len(paragraph.encode()) for paragraph in PARAGRAPHS]


def test_ids_that_the_model_lacks_are_left_out(tmp_path: Path) -> None:
    path = byte_tokenizer(tmp_path)
    assert max(token for ids in texts_at(path, vocab_size=100) for token in ids) < 100


def test_without_a_tokenizer_there_are_none(tiny_bundle: Any) -> None:
    assert texts_of(open_bundle(tiny_bundle().path)) == []
