"""The tokenizer that travels with a checkpoint: ``tokenizer.json`` and ``tokenizer_config.json``.

Older checkpoints have ``vocab.json`` and ``merges.txt`` (byte-level BPE); they are converted. Special tokens
and a chat template of other files are put into tokenizer_config.json. Nothing here runs the tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.character_tokenizer import META_SUFFIX, character_definition
from gpt_onnx.checkpoint.tokenizer_config import (
    END_OF_TEXT,
    TOKENIZER_CONFIG_FILE,
    config_beside,
    default_tokenizer_config,
    with_first_token,
)
from gpt_onnx.checkpoint.tokenizer_pair import MAX_ID, MERGES_FILE, VOCABULARY_FILE, is_id, pair_definition
from gpt_onnx.checkpoint.tokenizer_texts import json_object, read_text
from gpt_onnx.errors import CheckpointError

__all__ = [
    "END_OF_TEXT",
    "TOKENIZER_CONFIG_FILE",
    "TOKENIZER_FILE",
    "TokenizerFiles",
    "default_tokenizer_config",
    "read_tokenizer",
]

TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer as text, ready to be written beside weights."""

    definition: str
    """The text of tokenizer.json."""
    config: dict[str, Any] = field(default_factory=dict)
    """What tokenizer_config.json says: special tokens, chat template, the class that other programs use."""

    @property
    def vocab_size(self) -> int:
        """Rows that an embedding needs for it: its highest id plus one."""
        return 1 + max(_ids(json.loads(self.definition)), default=-1)


def _ids(tokenizer: dict[str, Any]) -> Iterator[int]:
    """Yield every id of a parsed tokenizer.json: the model's and those of the added tokens."""
    vocabulary = tokenizer["model"]["vocab"]
    yield from vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    for token in tokenizer.get("added_tokens") or ():
        yield token["id"]


def _checked(path: Path, text: str) -> dict[str, Any]:
    """Parse tokenizer.json, which must be an object with a vocabulary whose ids can be counted."""
    values = json_object(path, text)
    try:
        ids = list(_ids(values))
        texts = [token["content"] for token in values.get("added_tokens") or ()]
    except (AttributeError, KeyError, TypeError) as exc:
        raise CheckpointError(
            f"{path} has no vocabulary of tokens and ids: it is not a tokenizer.json."
        ) from exc
    if not ids or not all(map(is_id, ids)) or not all(isinstance(text, str) for text in texts):
        raise CheckpointError(
            f"{path} has a vocabulary without ids, or with ids that are not whole numbers from 0 to {MAX_ID}."
        )
    return values


def _has(values: dict[str, Any], token: str) -> bool:
    """Whether a checked tokenizer.json has a token."""
    added = {entry["content"] for entry in values.get("added_tokens") or ()}
    vocabulary = values["model"]["vocab"]
    return token in added or (isinstance(vocabulary, dict) and token in vocabulary)


def _files(path: Path, context_length: int) -> TokenizerFiles:
    """Put together a tokenizer.json and what stands beside it."""
    text = read_text(path)
    config = config_beside(path.parent, context_length, ends=_has(_checked(path, text), END_OF_TEXT))
    return TokenizerFiles(definition=text, config=config)


def _of_characters(path: Path, context_length: int) -> TokenizerFiles:
    config = {
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return TokenizerFiles(definition=character_definition(path), config=config)


def read_tokenizer(path: Path, context_length: int) -> TokenizerFiles | None:
    """Read the tokenizer of a folder (None where it has none), or one ``tokenizer.json``.

    ``vocab.json`` or ``merges.txt`` stands for the two of them; a ``meta.pkl`` is nanoGPT's.

    Raises:
        CheckpointError: if the file is missing or damaged, or vocab.json is there without merges.txt.
    """
    if path.name in (VOCABULARY_FILE, MERGES_FILE) and path.is_file():
        return _of_pair(path.parent, context_length)
    if path.suffix == META_SUFFIX and path.is_file():
        return _of_characters(path, context_length)
    if not path.is_dir():
        return _files(path, context_length)
    if (path / TOKENIZER_FILE).exists():
        return read_tokenizer(path / TOKENIZER_FILE, context_length)
    return _of_pair(path, context_length)


def _of_pair(folder: Path, context_length: int) -> TokenizerFiles | None:
    text = pair_definition(folder)
    if text is None:
        return None
    values = _checked(folder / VOCABULARY_FILE, text)
    config = config_beside(folder, context_length, ends=_has(values, END_OF_TEXT))
    return TokenizerFiles(definition=with_first_token(text, values, config), config=config)
