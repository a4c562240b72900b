"""Which parts of a tokenizer.json are accepted: a table for each kind of part, everything else is refused.

    clean = checked_part("decoder", {"type": "ByteLevel", "add_prefix_space": False, ...}, DECODERS)

A tokenizer.json is hostile input: some regular expressions and some chains of replacements never end, and
some values abort the process. So a part must be of a known type, its fields known and in range, a regular
expression either one of the published ones or too simple to backtrack, and a chain may make a text at most
MAX_GROWTH times longer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from gpt_onnx.errors import BundleError

Check = Callable[[Any], bool]
Table = Mapping[str, Mapping[str, Check]]

REMEDY = "export again with another --tokenizer, or with --tokenizer none, and use ids"
MAX_GROWTH = 64
MAX_PARTS = 16
MAX_DEPTH = 3

# The most times that a part multiplies the bytes of a text, where that is more than once.
GROWTH = {
    "NFD": 3.0,
    "NFKC": 18.0,  # one Arabic ligature becomes a phrase
    "NFKD": 18.0,
    "Lowercase": 1.5,
    "BertNormalizer": 3.0,  # a space on either side of each Chinese character
    "ByteLevel": 2.0,  # a byte becomes a character of two bytes
    "Metaspace": 4.0,  # a space becomes any one character
}

# Published patterns, each of which takes time linear in the text.
KNOWN_PATTERNS = frozenset(
    {
        # GPT-2
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # Llama 3, Qwen 2, GPT-4 (cl100k_base)
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
        # GPT-4o (o200k_base)
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    }
)

# Characters or classes between bars, each with at most one quantifier: nothing in that can backtrack.
_ESCAPE = r"\\[sSdDwWrnt]|\\[pP]\{[A-Za-z]{1,2}\}"
_ATOM = rf"(?:{_ESCAPE}|[A-Za-z0-9_ ']|\[\^?(?:{_ESCAPE}|[A-Za-z0-9_ '])+\])(?:\+|\{{(?:1,)?[1-9]\}})?"
_SIMPLE = re.compile(rf"{_ATOM}(?:\|{_ATOM}){{0,15}}")


def is_bool(value: object) -> bool:
    """Whether a value is true or false."""
    return type(value) is bool


def is_count(low: int, high: int) -> Check:
    """Return a check for an integer from ``low`` to ``high``."""
    return lambda value: type(value) is int and low <= value <= high


def is_text(low: int, high: int) -> Check:
    """Return a check for a string of ``low`` to ``high`` characters."""
    return lambda value: isinstance(value, str) and low <= len(value) <= high


def optional(check: Check) -> Check:
    """Return a check that also accepts null."""
    return lambda value: value is None or check(value)


def one_of(*choices: str) -> Check:
    """Return a check for one of some words."""
    return lambda value: isinstance(value, str) and value in choices


def is_literal(value: object) -> bool:
    """Whether a pattern is a literal string that is not empty."""
    return isinstance(value, dict) and set(value) == {"String"} and is_text(1, 64)(value["String"])


def is_pattern(value: object) -> bool:
    """Whether a pattern is a literal, or a regular expression that takes time linear in the text."""
    if not (isinstance(value, dict) and set(value) == {"Regex"} and isinstance(value["Regex"], str)):
        return is_literal(value)
    return value["Regex"] in KNOWN_PATTERNS or _SIMPLE.fullmatch(value["Regex"]) is not None


_CHARACTER = is_text(1, 1)
_BEHAVIOR = one_of("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_BYTE_LEVEL = {"add_prefix_space": is_bool, "trim_offsets": is_bool, "use_regex": is_bool}
_METASPACE = {
    "replacement": _CHARACTER,
    "prepend_scheme": one_of("always", "never", "first"),
    "split": is_bool,
    "add_prefix_space": is_bool,
    "str_rep": _CHARACTER,
}
_REPLACE = {"pattern": is_literal, "content": is_text(0, 64)}

NORMALIZERS: Table = {
    "NFC": {},
    "NFD": {},
    "NFKC": {},
    "NFKD": {},
    "Lowercase": {},
    "StripAccents": {},
    "Strip": {"strip_left": is_bool, "strip_right": is_bool},
    "Prepend": {"prepend": is_text(1, 16)},
    "Replace": _REPLACE,
    "BertNormalizer": {
        "clean_text": is_bool,
        "handle_chinese_chars": is_bool,
        "strip_accents": optional(is_bool),
        "lowercase": is_bool,
    },
}
PRE_TOKENIZERS: Table = {
    "ByteLevel": _BYTE_LEVEL,
    "Whitespace": {},
    "WhitespaceSplit": {},
    "BertPreTokenizer": {},
    "Punctuation": {"behavior": _BEHAVIOR},
    "Digits": {"individual_digits": is_bool},
    "Metaspace": _METASPACE,
    "CharDelimiterSplit": {"delimiter": _CHARACTER},
    "Split": {"pattern": is_pattern, "behavior": _BEHAVIOR, "invert": is_bool},
}
DECODERS: Table = {
    "ByteLevel": _BYTE_LEVEL,
    "ByteFallback": {},
    "Fuse": {},
    "Metaspace": _METASPACE,
    "WordPiece": {"prefix": is_text(1, 16), "cleanup": is_bool},
    "BPEDecoder": {"suffix": is_text(1, 16)},
    "Replace": _REPLACE,
    # Stripping the end of a text would take back what was already streamed.
    "Strip": {"content": _CHARACTER, "start": is_count(0, 16), "stop": is_count(0, 0)},
}
_MEMBERS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def _refuse(kind: str, what: str) -> BundleError:
    return BundleError(f"tokenizer.json: {kind} {what}, which is not accepted; {REMEDY}.")


def checked_fields(kind: str, part: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """Return a copy of a part all of whose fields are known and in range.

    Raises:
        BundleError: naming the kind of part and the field.
    """
    name = str(part.get("type"))[:40]
    for field, value in part.items():
        if field != "type" and field not in checks:
            raise _refuse(kind, f"{name} has the unknown field {field[:40]!r}")
        if field != "type" and not checks[field](value):
            raise _refuse(kind, f"{name} has {field} = {str(value)[:60]!r}")
    return dict(part)


def _flatten(kind: str, part: Any, table: Table, depth: int) -> list[dict[str, Any]]:
    """Return the parts of a chain, checked, in order; a chain in a chain is the same as one long chain."""
    if not isinstance(part, dict):
        raise _refuse(kind, f"is a {type(part).__name__}")
    if part.get("type") == "Sequence":
        members = part.get(_MEMBERS[kind])
        if depth == MAX_DEPTH or not isinstance(members, list) or len(members) > MAX_PARTS:
            raise _refuse(kind, f"is a chain without members, or deeper than {MAX_DEPTH}, or too long")
        return [leaf for member in members for leaf in _flatten(kind, member, table, depth + 1)]
    name = part.get("type")
    if not isinstance(name, str) or name not in table:
        raise _refuse(kind, f"is of the type {str(name)[:40]!r}")
    return [checked_fields(kind, part, table[name])]


def growth(part: Mapping[str, Any]) -> float:
    """Return the most times that a part can multiply the bytes of a text."""
    if part["type"] == "Replace" and {"pattern", "content"} <= part.keys():
        new, old = (text.encode(errors="replace") for text in (part["content"], part["pattern"]["String"]))
        return max(1.0, len(new) / len(old))
    return GROWTH.get(part["type"], 1.0)


def checked_part(kind: str, part: Any, table: Table) -> dict[str, Any] | None:
    """Return a copy of a normalizer, pre-tokenizer or decoder made of accepted parts; None stays None.

    Args:
        kind: "normalizer", "pre_tokenizer" or "decoder".
        part: what the file says.
        table: NORMALIZERS, PRE_TOKENIZERS or DECODERS.

    Raises:
        BundleError: naming the part that is not accepted.
    """
    if part is None:
        return None
    leaves = _flatten(kind, part, table, 0)
    if len(leaves) > MAX_PARTS or math.prod(growth(leaf) for leaf in leaves) > MAX_GROWTH:
        raise _refuse(kind, f"has more than {MAX_PARTS} parts or multiplies a text by more than {MAX_GROWTH}")
    return leaves[0] if len(leaves) == 1 else {"type": "Sequence", _MEMBERS[kind]: leaves}
