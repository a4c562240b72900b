"""The ids of the tokens that begin and end a text, as a tokenizer's files tell them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles
from gpt_onnx.hf_words import ROLES


def _vocabulary(definition: dict[str, Any]) -> dict[str, int]:
    vocabulary = definition.get("model", {}).get("vocab", {})
    return vocabulary if isinstance(vocabulary, dict) else {}


def _text(token: Any) -> str | None:
    """Return a special token's text; tokenizer_config.json gives a string or an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def special_ids(tokenizer: TokenizerFiles | None) -> dict[str, int]:
    """Return bos_token_id and eos_token_id, as far as the tokenizer names such tokens."""
    if tokenizer is None:
        return {}
    definition = json.loads(tokenizer.definition)
    ids = {token["content"]: token["id"] for token in definition.get("added_tokens") or ()}
    ids |= {
        token: number
        for token, number in _vocabulary(definition).items()
        if token in {_text(tokenizer.config.get(f"{role}_token")) for role in ("bos", "eos")}
    }
    found = {role: ids.get(_text(tokenizer.config.get(f"{role}_token"))) for role in ("bos", "eos")}
    return {f"{role}_token_id": number for role, number in found.items() if number is not None}


def special_of(tokenizer: TokenizerFiles | None, generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of special tokens: as the checkpoint says, else as its tokenizer names them."""
    return special_ids(tokenizer) | {role: generation[role] for role in ROLES if role in generation}
