"""nanoGPT's ``meta.pkl``: one token for each character, as ``data/*_char/prepare.py`` writes it.

It is a pickle of {"vocab_size": 65, "itos": {0: " ", ...}, "stoi": {" ": 0, ...}}, and is read by a machine
that makes plain values alone (gpt_onnx.checkpoint.archive_pickle). The tokenizer.json that is made of it
splits a text into its characters; one that it lacks is an error for whoever encodes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from gpt_onnx.checkpoint.archive_machine import Named, PickleFault
from gpt_onnx.checkpoint.archive_pickle import read_pickle
from gpt_onnx.errors import CheckpointError

META_SUFFIX = ".pkl"
MAX_BYTES = 16_000_000
UNKNOWN = "<unk>"
"""What the library wants a name for; it is not in the vocabulary, so an unknown character is an error."""


class _PlainValues:
    """Gives no call a meaning; see Builder."""

    def name(self, named: Named) -> NoReturn:
        raise PickleFault(f"names {named}, and a table of characters holds plain values alone")

    def call(self, named: Named, args: tuple[Any, ...]) -> NoReturn:
        raise PickleFault(f"calls {named}")

    def persistent(self, identity: object) -> NoReturn:
        raise PickleFault("refers to a storage")


def _meta(path: Path) -> Mapping[Any, Any]:
    """Read what the pickle holds.

    Raises:
        CheckpointError: if it cannot be read, or holds anything but a dict of plain values.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(
                f"{path} has {path.stat().st_size} bytes; a meta.pkl has at most {MAX_BYTES}."
            )
        value, _ = read_pickle(path.read_bytes(), _PlainValues())
    except OSError as exc:
        raise CheckpointError(f"{path} could not be read: {exc.strerror or exc}.") from exc
    except PickleFault as exc:
        raise CheckpointError(f"{path} {exc}; --tokenizer takes the meta.pkl that nanoGPT wrote.") from exc
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; a meta.pkl of nanoGPT holds a dict.")
    return value


def _vocabulary(path: Path, meta: Mapping[Any, Any]) -> dict[str, int]:
    """Return the ids of the characters.

    Raises:
        CheckpointError: if there is no table, or its two directions do not agree.
    """
    stoi, itos = meta.get("stoi"), meta.get("itos")
    if not isinstance(stoi, dict) or not isinstance(itos, dict) or not stoi:
        raise CheckpointError(f"{path} lacks stoi and itos, the two tables of nanoGPT's characters.")
    for text, number in stoi.items():
        if not isinstance(text, str) or len(text) != 1:
            raise CheckpointError(f"{path} has the token {str(text)[:40]!r}; each must be one character.")
        if type(number) is not int or itos.get(number) != text:
            raise CheckpointError(f"{path} gives {text!r} the id {str(number)[:40]}, and itos another.")
    if sorted(stoi.values()) != list(range(len(itos))):
        raise CheckpointError(f"{path} has ids that are not 0 to {len(itos) - 1}, one for each character.")
    return stoi


def character_definition(path: Path) -> str:
    """Return the text of the tokenizer.json that a meta.pkl stands for.

    Raises:
        CheckpointError: if it is no table of characters.
    """
    vocabulary = _vocabulary(path, _meta(path))
    one_by_one = {
        "type": "Split",
        "pattern": {"Regex": r"[\s\S]"},
        "behavior": "Isolated",
        "invert": False,
    }
    definition: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": one_by_one,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
    }
    return json.dumps(definition, ensure_ascii=False)
