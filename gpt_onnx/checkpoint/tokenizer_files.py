"""The tokenizer that travels with a checkpoint: ``tokenizer.json`` and ``tokenizer_config.json``.

Older checkpoints have ``vocab.json`` and ``merges.txt`` (byte-level BPE); they are converted. Nothing here
runs the tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_onnx.errors import CheckpointError

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
END_OF_TEXT = "<|endoftext|>"
MAX_TOKENIZER_BYTES = 200_000_000
MAX_ID = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """A tokenizer as text, ready to be written beside weights."""

    definition: str
    """The text of tokenizer.json."""
    config: dict[str, Any] = field(default_factory=dict)
    """What tokenizer_config.json says: special tokens and the class that other programs use."""

    @property
    def vocab_size(self) -> int:
        """Rows that an embedding needs for it: its highest id plus one."""
        return 1 + max(_ids(json.loads(self.definition)), default=-1)


def default_tokenizer_config(context_length: int) -> dict[str, Any]:
    """Return the tokenizer_config.json of a byte-level BPE whose only special token is END_OF_TEXT."""
    return {
        "add_prefix_space": False,
        "bos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TEXT,
        "model_max_length": context_length,
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": END_OF_TEXT,
    }


def _definition(path: Path) -> str:
    """Read tokenizer.json and check that it is an object with a vocabulary whose ids can be counted."""
    text = _read_text(path)
    try:
        ids = list(_ids(_json_object(path, text)))
    except (AttributeError, KeyError, TypeError) as exc:
        raise CheckpointError(
            f"{path} has no vocabulary of tokens and ids: it is not a tokenizer.json."
        ) from exc
    if not ids or not all(map(_is_id, ids)):
        raise CheckpointError(
            f"{path} has a vocabulary without ids, or with ids that are not whole numbers from 0 to {MAX_ID}."
        )
    return text


def _is_id(number: object) -> bool:
    return type(number) is int and 0 <= number <= MAX_ID


def _ids(tokenizer: dict[str, Any]) -> Iterator[int]:
    """Yield every id of a parsed tokenizer.json: the model's and those of the added tokens."""
    vocabulary = tokenizer["model"]["vocab"]
    yield from vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    for token in tokenizer.get("added_tokens") or ():
        yield token["id"]


def _config_beside(path: Path, context_length: int) -> dict[str, Any]:
    """Read the tokenizer_config.json in the same folder; the usual one where there is none."""
    config = path.with_name(TOKENIZER_CONFIG_FILE)
    if not config.exists():
        return default_tokenizer_config(context_length)
    return _json_object(config, _read_text(config))


def _converted(vocabulary: Path, merges: Path) -> str:
    """Build tokenizer.json from GPT-2's two files."""
    from gpt_onnx.checkpoint.byte_level import byte_level_bpe

    vocab = _json_object(vocabulary, _read_text(vocabulary))
    if wrong := next((token for token, number in vocab.items() if not _is_id(number)), None):
        raise CheckpointError(
            f"{vocabulary} gives {wrong[:40]!r} the id {str(vocab[wrong])[:40]}; ids are whole numbers "
            f"from 0 to {MAX_ID}."
        )
    lines = [
        line for line in _read_text(merges).split("\n") if line.strip() and not line.startswith("#version")
    ]
    pairs = [tuple(line.split(" ")) for line in lines]
    if bad := next((pair for pair in pairs if len(pair) != 2), None):
        raise CheckpointError(f"{merges} has the line {' '.join(bad)[:40]!r}; each must be two tokens.")
    try:
        return byte_level_bpe(vocab, [(left, right) for left, right in pairs], END_OF_TEXT).to_str()
    except Exception as exc:  # the tokenizers library raises bare Exception
        reason = next(iter(str(exc).splitlines()), type(exc).__name__).removesuffix(".")
        raise CheckpointError(f"{vocabulary} and {merges} do not fit together: {reason}.") from exc


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            raise CheckpointError(
                f"{path} has {path.stat().st_size} bytes; at most {MAX_TOKENIZER_BYTES} are read."
            )
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise CheckpointError(f"{path} could not be read: {exc.strerror or exc}.") from exc
    except UnicodeDecodeError as exc:
        raise CheckpointError(f"{path} is not UTF-8 text: {exc.reason} at byte {exc.start}.") from exc


def _json_object(path: Path, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CheckpointError(f"{path} is not valid JSON: {exc}.") from exc
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds a {type(values).__name__}; it must hold one JSON object.")
    return values


def _read_pair(folder: Path, context_length: int) -> TokenizerFiles | None:
    """Convert vocab.json and merges.txt of a folder; None where it has neither."""
    present = [name for name in (VOCABULARY_FILE, MERGES_FILE) if (folder / name).exists()]
    if not present:
        return None
    if len(present) == 1:
        missing = MERGES_FILE if present == [VOCABULARY_FILE] else VOCABULARY_FILE
        raise CheckpointError(f"{folder} has {present[0]} and no {missing}; a byte-level BPE needs both.")
    definition = _converted(folder / VOCABULARY_FILE, folder / MERGES_FILE)
    return TokenizerFiles(
        definition=definition, config=_config_beside(folder / VOCABULARY_FILE, context_length)
    )


def read_tokenizer(path: Path, context_length: int) -> TokenizerFiles | None:
    """Read the tokenizer of a folder (None where it has none), or one ``tokenizer.json``.

    ``vocab.json`` or ``merges.txt`` stands for the two of them.

    Raises:
        CheckpointError: if the file is missing or damaged, or vocab.json is there without merges.txt.
    """
    if path.name in (VOCABULARY_FILE, MERGES_FILE) and path.is_file():
        return _read_pair(path.parent, context_length)
    if not path.is_dir():
        return TokenizerFiles(definition=_definition(path), config=_config_beside(path, context_length))
    if (path / TOKENIZER_FILE).exists():
        return read_tokenizer(path / TOKENIZER_FILE, context_length)
    return _read_pair(path, context_length)
