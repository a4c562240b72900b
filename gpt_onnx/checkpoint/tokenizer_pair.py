"""vocab.json and merges.txt, which older folders have in place of a tokenizer.json: byte-level BPE.

How text is split before merging is not in the two files; the class that tokenizer_config.json names tells it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.tokenizer_config import END_OF_TEXT, TOKENIZER_CONFIG_FILE
from gpt_onnx.checkpoint.tokenizer_texts import json_object, read_object, read_text
from gpt_onnx.errors import CheckpointError

VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
ADDED_TOKENS_FILE = "added_tokens.json"
MAX_ID = 2**31 - 1
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2: Mapping[str, Any] = {
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": QWEN2_PATTERN},
                "behavior": "Isolated",
                "invert": False,
            },
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ],
    },
}
CLASSES: Mapping[str | None, Mapping[str, Any]] = {
    None: {},
    "GPT2Tokenizer": {},
    "GPT2TokenizerFast": {},
    "PreTrainedTokenizerFast": {},
    "Qwen2Tokenizer": _QWEN2,
    "Qwen2TokenizerFast": _QWEN2,
}
"""Classes of tokenizers of the two files, and what differs from GPT-2's."""


def is_id(number: object) -> bool:
    """Whether a value can be the id of a token."""
    return type(number) is int and 0 <= number <= MAX_ID


def _vocabulary(path: Path) -> dict[str, int]:
    vocab = json_object(path, read_text(path))
    if (wrong := next((token for token, number in vocab.items() if not is_id(number)), None)) is not None:
        raise CheckpointError(
            f"{path} gives {wrong[:40]!r} the id {str(vocab[wrong])[:40]}; ids are whole numbers "
            f"from 0 to {MAX_ID}."
        )
    return vocab


def _merges(path: Path) -> list[tuple[str, str]]:
    lines = [line for line in read_text(path).split("\n") if line.strip() and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    if (bad := next((pair for pair in pairs if len(pair) != 2), None)) is not None:
        raise CheckpointError(f"{path} has the line {' '.join(bad)[:40]!r}; each must be two tokens.")
    return [(left, right) for left, right in pairs]


def _form(folder: Path) -> Mapping[str, Any]:
    """Return what differs from GPT-2's form, by the class that the folder names."""
    config = read_object(folder / TOKENIZER_CONFIG_FILE)
    name = config.get("tokenizer_class")
    if not isinstance(name, str | None) or name not in CLASSES:
        known = ", ".join(filter(None, CLASSES))
        raise CheckpointError(
            f"{folder} has {VOCABULARY_FILE} and {MERGES_FILE} of the class {str(name)[:60]!r}; known are "
            f"{known}: save it in transformers with save_pretrained, which writes a tokenizer.json."
        )
    form = dict(CLASSES[name])
    if config.get("add_prefix_space") is True and "pre_tokenizer" not in form:
        form["pre_tokenizer"] = {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        }
    return form


def _added(folder: Path) -> dict[str, int]:
    """Return the tokens that were added to the vocabulary, by their text."""
    found = dict(read_object(folder / ADDED_TOKENS_FILE))
    decoder = read_object(folder / TOKENIZER_CONFIG_FILE).get("added_tokens_decoder")
    for number, token in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(token, dict) and isinstance(token.get("content"), str) and number.isdigit():
            found.setdefault(token["content"], int(number))
    if (wrong := next((token for token, number in found.items() if not is_id(number)), None)) is not None:
        raise CheckpointError(f"{folder} adds the token {wrong[:40]!r} with an id that is no whole number.")
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _with_added(folder: Path, definition: dict[str, Any]) -> dict[str, Any]:
    """Put added tokens into a tokenizer.json, as control tokens."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    entries = {entry["content"]: entry for entry in definition["added_tokens"]}
    for token, number in _added(folder).items():
        entries.setdefault(token, {"id": number, "content": token, **plain})
    return definition | {"added_tokens": sorted(entries.values(), key=lambda entry: int(entry["id"]))}


def _check_added(folder: Path, definition: dict[str, Any]) -> None:
    """See that the tokenizers library gives added tokens the ids that the files say."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json.dumps(definition))
    for entry in definition["added_tokens"]:
        if tokenizer.token_to_id(entry["content"]) != entry["id"]:
            raise CheckpointError(
                f"{folder} adds the token {entry['content'][:40]!r} with the id {entry['id']}, which does "
                "not follow the vocabulary; save it in transformers with save_pretrained."
            )


def pair_definition(folder: Path) -> str | None:
    """Return the tokenizer.json of a folder's two files; None where it has neither.

    Raises:
        CheckpointError: if one is missing, they do not fit together, or are of an unknown class.
    """
    present = [name for name in (VOCABULARY_FILE, MERGES_FILE) if (folder / name).exists()]
    if not present:
        return None
    if len(present) == 1:
        missing = MERGES_FILE if present == [VOCABULARY_FILE] else VOCABULARY_FILE
        raise CheckpointError(f"{folder} has {present[0]} and no {missing}; a byte-level BPE needs both.")
    return _converted(folder)


def _converted(folder: Path) -> str:
    from gpt_onnx.checkpoint.byte_level import byte_level_bpe

    vocab, merges = _vocabulary(folder / VOCABULARY_FILE), _merges(folder / MERGES_FILE)
    form = _form(folder)
    try:
        plain = byte_level_bpe(vocab, merges, END_OF_TEXT).to_str()
    except Exception as exc:  # the tokenizers library raises bare Exception
        reason = next(iter(str(exc).splitlines()), type(exc).__name__).removesuffix(".")
        raise CheckpointError(
            f"{folder / VOCABULARY_FILE} and {folder / MERGES_FILE} do not fit together: {reason}."
        ) from exc
    definition = _with_added(folder, json.loads(plain) | form)
    _check_added(folder, definition)
    return json.dumps(definition, ensure_ascii=False)
