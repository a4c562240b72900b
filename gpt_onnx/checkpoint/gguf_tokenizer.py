"""The tokenizer in the metadata of a GGUF file, as tokenizer.json: a byte-level BPE of a known kind.

The file has tokens, merges and one word for how text is cut up before ("pre"), of which PRES has those that
are known. A SentencePiece tokenizer has no merges in GGUF and is not rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpt_onnx.checkpoint.gguf_metadata import shown
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles
from gpt_onnx.errors import CheckpointError

PREFIX = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # kinds of token
REMEDY = "take another tokenizer with --tokenizer, or none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pre:
    """How a text is cut up before merges, and what belongs to it."""

    pattern: str | None = None
    """What is cut out; None: GPT-2's pattern."""
    digits: bool = False
    """Whether every digit stands alone first."""
    composed: bool = False
    """Whether text is brought to NFC."""
    ignore_merges: bool = False
    """Whether a piece that is a token is taken whole."""
    starts: bool = False
    """Whether a text begins with the token of its beginning, where the file does not say."""


_LLAMA3 = Pre(
    pattern=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ignore_merges=True,
    starts=True,
)
_QWEN2 = Pre(
    pattern=r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    composed=True,
)
PRES: Mapping[str, Pre] = {
    "gpt-2": Pre(),
    "smollm": Pre(digits=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}
"""By the word in ``tokenizer.ggml.pre``."""


@dataclass(frozen=True, slots=True)
class _Words:
    """The tokenizer's part of the metadata."""

    path: Path
    metadata: Mapping[str, Any]

    def fault(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what}; {REMEDY}.")

    def texts(self, key: str) -> list[str]:
        value = self.metadata.get(PREFIX + key)
        if not isinstance(value, list):
            raise self.fault(f"{PREFIX}{key} is {shown(value)}, and a list of texts was expected")
        return value

    def kinds(self, count: int) -> list[int]:
        """Return the kind of each token; an empty list where the file has none."""
        value = self.metadata.get(f"{PREFIX}token_type")
        if value is None:
            return []
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.size != count:
            raise self.fault(f"{PREFIX}token_type is {shown(value)}, and {count} integers were expected")
        return [int(kind) for kind in value]

    def flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(PREFIX + key, default)
        if type(value) is not bool:
            raise self.fault(f"{PREFIX}{key} is {shown(value)}, and true or false was expected")
        return value

    def special(self, role: str, tokens: list[str]) -> str | None:
        """Return the token of a role, such as eos."""
        value = self.metadata.get(f"{PREFIX}{role}_token_id")
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < len(tokens):
            raise self.fault(
                f"{PREFIX}{role}_token_id is {shown(value)}, and an id below {len(tokens)} was expected"
            )
        return tokens[value]


def _vocabulary(words: _Words, tokens: list[str], kinds: list[int]) -> dict[str, int]:
    vocab: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if kinds and kinds[number] == UNUSED:
            continue
        if vocab.setdefault(token, number) != number:
            raise words.fault(
                f"the token {token[:40]!r} occurs twice, with the ids {vocab[token]} and {number}"
            )
    return vocab


def _merges(words: _Words, vocab: Mapping[str, int]) -> list[list[str]]:
    pairs = [merge.split(" ") for merge in words.texts("merges")]
    for pair in pairs:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocab.keys():
            raise words.fault(f"the merge {' '.join(pair)[:40]!r} is not of two tokens that make a third")
    return pairs


def _added(vocab: Mapping[str, int], kinds: list[int], special: set[str]) -> list[dict[str, Any]]:
    """Return the tokens that are never made of pieces of text."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": number, "content": token, **flags, "special": is_special}
        for token, number in vocab.items()
        if (is_special := token in special or (bool(kinds) and kinds[number] == CONTROL))
        or (kinds and kinds[number] == USER_DEFINED)
    ]


def _pre_tokenizer(pre: Pre) -> dict[str, Any]:
    """Return the chain that cuts a text up."""
    plain = pre.pattern is None
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": plain}
    if plain and not pre.digits:
        return last
    split = {"type": "Split", "pattern": {"Regex": pre.pattern}, "behavior": "Isolated", "invert": False}
    first = {"type": "Digits", "individual_digits": True} if pre.digits else split
    return {"type": "Sequence", "pretokenizers": [first, last]}


def _post_processor(start: str | None, vocab: Mapping[str, int]) -> dict[str, Any]:
    if start is None:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    first = {"SpecialToken": {"id": start, "type_id": 0}}
    sequences = [{"Sequence": {"id": letter, "type_id": index}} for index, letter in enumerate("AB")]
    return {
        "type": "TemplateProcessing",
        "single": [first, sequences[0]],
        "pair": [first, sequences[0], {"SpecialToken": {"id": start, "type_id": 1}}, sequences[1]],
        "special_tokens": {start: {"id": start, "ids": [vocab[start]], "tokens": [start]}},
    }


def _definition(words: _Words, pre: Pre, special: Mapping[str, str]) -> str:
    """Build the text of tokenizer.json."""
    tokens = words.texts("tokens")
    kinds = words.kinds(len(tokens))
    vocab = _vocabulary(words, tokens, kinds)
    if unused := next((token for token in special.values() if token not in vocab), None):
        raise words.fault(f"the special token {unused[:40]!r} is marked as unused")
    start = special.get("bos") if words.flag("add_bos_token", pre.starts) else None
    definition = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(vocab, kinds, set(special.values())),
        "normalizer": {"type": "NFC"} if pre.composed else None,
        "pre_tokenizer": _pre_tokenizer(pre),
        "post_processor": _post_processor(start, vocab),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre.ignore_merges,
            "vocab": vocab,
            "merges": _merges(words, vocab),
        },
    }
    return json.dumps(definition, ensure_ascii=False)


def _config(words: _Words, special: Mapping[str, str], context_length: int) -> dict[str, Any]:
    """Return what tokenizer_config.json says."""
    template = words.metadata.get(TEMPLATE)
    return {
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{role}_token": token for role, token in special.items()},
        **({"chat_template": template} if isinstance(template, str) else {}),
    }


def tokenizer_of(
    path: Path, metadata: Mapping[str, Any], context_length: int, usual: str | None
) -> tuple[TokenizerFiles | None, str | None]:
    """Return the tokenizer of a GGUF file, or None and a sentence that says why there is none.

    Args:
        path: The file, for messages.
        metadata: What it says.
        context_length: Tokens that the model was trained on at once.
        usual: How text is cut up where the file does not say; None: not known.

    Raises:
        CheckpointError: if it is damaged.
    """
    words = _Words(path, metadata)
    kind, pre = metadata.get(f"{PREFIX}model"), metadata.get(f"{PREFIX}pre")
    if kind is None:
        return None, "The file has no tokenizer; give one with --tokenizer, or work with ids."
    if kind != "gpt2":
        return None, (
            f"The file's tokenizer is of the kind {shown(kind)}, which cannot be rebuilt from GGUF; give the "
            "model's own with --tokenizer."
        )
    pre = usual if pre in (None, "default") else pre
    if not isinstance(pre, str) or pre not in PRES:
        return None, (
            f"How the file's tokenizer cuts text up ({shown(metadata.get(PREFIX + 'pre'))}) is not known, as "
            f"{', '.join(PRES)} are; give the model's own with --tokenizer."
        )
    tokens = words.texts("tokens")
    named = {role: words.special(role, tokens) for role in ("bos", "eos")}
    special = {role: token for role, token in named.items() if token is not None}
    definition = _definition(words, PRES[pre], special)
    return TokenizerFiles(definition=definition, config=_config(words, special, context_length)), None
