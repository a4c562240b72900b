"""Definitions of tokenizers, and a bundle's loading of them, changed by an edit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer

EOT = "<|endoftext|>"


Edit = Callable[[dict[str, Any]], object]


def trained() -> dict[str, Any]:
    """A byte-level BPE as the trainer of this project makes it: end-of-text is id 0."""
    rust = RustTokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[EOT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rust.train_from_iterator(["my fellow citizens, the state of the union is strong. "] * 9, trainer)
    values: dict[str, Any] = json.loads(rust.to_str())
    return values


TRAINED = trained()


WORDS: dict[str, Any] = {
    "added_tokens": [{"id": 1, "content": "[SEP]", "special": True}],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {
        "type": "WordLevel",
        "vocab": {"[UNK]": 0, "[SEP]": 1, "hello": 2, "you": 5},
        "unk_token": "[UNK]",
    },
}


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


PIECES: dict[str, Any] = {
    "pre_tokenizer": METASPACE,
    "decoder": METASPACE,
    "model": {
        "type": "Unigram",
        "vocab": [["<unk>", 0.0], ["h", -1.0], ["i", -2.0], ["▁", -2.0]],
        "unk_id": 0,
    },
}


def load(folder: Path, values: dict[str, Any], edit: Edit | None = None, **options: Any) -> Tokenizer:
    values = copy.deepcopy(values)
    if edit is not None:
        edit(values)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return load_tokenizer(path, **options)
