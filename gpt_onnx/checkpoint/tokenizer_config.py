"""What stands beside a tokenizer.json: special tokens, the chat template, a first token.

    tokenizer_config.json      all of it, in folders of today
    special_tokens_map.json    special tokens that tokenizer_config.json lacks
    chat_template.jinja        the chat template, where it is a file of its own

They are put together into one tokenizer_config.json. A template is text here: it is never run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.tokenizer_texts import read_object, read_own_text
from gpt_onnx.errors import CheckpointError

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
CHAT_TEMPLATE = "chat_template"
END_OF_TEXT = "<|endoftext|>"
ROLES = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "pad", "sep", "cls", "mask"))
CODE = ("auto_map",)
"""Keys that name code of the folder; a bundle names none."""
MAX_TEMPLATE = 1_000_000  # characters


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


def token_text(token: object) -> str | None:
    """Return a special token's text; the files give a string or an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _named_template(value: object, path: Path) -> str | None:
    """Return the template of tokenizer_config.json: a text, or the one called "default" of several.

    Raises:
        CheckpointError: if it is of another form.
    """
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        value = {str(entry.get("name")): entry.get("template") for entry in value}
    if isinstance(value, dict):
        value = value.get("default")
    if value is not None and not (isinstance(value, str) and len(value) <= MAX_TEMPLATE):
        raise CheckpointError(
            f"{path} has a {CHAT_TEMPLATE} that is not a text of at most {MAX_TEMPLATE} characters."
        )
    return value


def _template(folder: Path, values: Mapping[str, Any]) -> str | None:
    """Return the chat template; a file of its own counts before tokenizer_config.json."""
    file = folder / CHAT_TEMPLATE_FILE
    if file.is_file():
        return _named_template(read_own_text(file), file)
    return _named_template(values.get(CHAT_TEMPLATE), folder / TOKENIZER_CONFIG_FILE)


def config_beside(folder: Path, context_length: int, *, ends: bool) -> dict[str, Any]:
    """Return the tokenizer_config.json of a folder, with what other files of it add.

    Args:
        folder: Where the files are.
        context_length: For the usual configuration, where there is none.
        ends: Whether the tokenizer has END_OF_TEXT.

    Raises:
        CheckpointError: if a file is damaged.
    """
    values = read_object(folder / TOKENIZER_CONFIG_FILE)
    if not (folder / TOKENIZER_CONFIG_FILE).exists():
        plain = {"model_max_length": context_length, "tokenizer_class": "PreTrainedTokenizerFast"}
        values = default_tokenizer_config(context_length) if ends else plain
    special = read_object(folder / SPECIAL_TOKENS_FILE)
    for role in ROLES:
        if values.get(role) is None and special.get(role) is not None:
            values[role] = special[role]
    if (template := _template(folder, values)) is not None:
        values[CHAT_TEMPLATE] = template
    else:
        values.pop(CHAT_TEMPLATE, None)
    return {key: value for key, value in values.items() if key not in CODE}


def _template_processor(token: str, number: int) -> dict[str, Any]:
    """Return a post-processor that puts one token before a text."""
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    text, second = ({"Sequence": {"id": name, "type_id": kind}} for name, kind in (("A", 0), ("B", 1)))
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, first, second],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def with_first_token(definition: str, parsed: dict[str, Any], config: Mapping[str, Any]) -> str:
    """Return a tokenizer.json that puts the first token before a text where add_bos_token says so.

    For vocab.json and merges.txt: a tokenizer.json of the source's own says it itself, and transformers
    follows that alone.
    """
    token = token_text(config.get("bos_token"))
    added = {entry["content"]: entry["id"] for entry in parsed["added_tokens"]}
    number = added.get(token, parsed["model"]["vocab"].get(token))
    if config.get("add_bos_token") is not True or token is None or number is None:
        return definition
    return json.dumps(parsed | {"post_processor": _template_processor(token, number)}, ensure_ascii=False)
