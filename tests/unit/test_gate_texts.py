"""Real text for the gate."""

from __future__ import annotations

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from gpt_onnx.checkpoint import TokenizerFiles
from gpt_onnx.export.gate import sample_texts
from gpt_onnx.export.gate.texts import PARAGRAPHS


def byte_tokenizer() -> TokenizerFiles:
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return TokenizerFiles(definition=json.dumps(json.loads(tokenizer.to_str())))


def test_paragraphs_become_ids() -> None:
    texts = sample_texts(byte_tokenizer())
    assert [len(ids) for ids in texts] == [len(paragraph.encode()) for paragraph in PARAGRAPHS]


def test_without_a_tokenizer_there_are_none() -> None:
    assert sample_texts(None) == []
