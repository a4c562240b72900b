"""The model, the added tokens and the template of a tokenizer.json, checked and reduced to what is used.

    vocabulary = checked_model(values["model"])           # BPE, WordLevel, WordPiece or Unigram
    added = checked_added(values.get("added_tokens"))
    prefix = template_prefix(values.get("post_processor"))

Refused: other models, ids that are negative, repeated or beyond MAX_IDS, tokens above MAX_TOKEN characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpt_onnx.errors import BundleError

from ._tokenizer_parts import Check, checked_fields, is_bool, is_count, is_text, optional

MAX_IDS = 1 << 21
MAX_TOKEN = 4096  # characters
MAX_ADDED = 100_000
MAX_PREFIX = 16  # tokens that a template puts before a text

_CONTROL = re.compile(r"<\|[^<>|\s]{1,64}\|>")
_FOREIGN = "use ids (--prompt-ids), or export with a tokenizer of the tokenizers library"


def _is_vocab(value: object) -> bool:
    return isinstance(value, dict) and all(is_text(0, MAX_TOKEN)(token) for token in value)


def _is_merge(merge: object) -> bool:
    if isinstance(merge, str):
        return len(merge) <= 2 * MAX_TOKEN and merge.count(" ") == 1
    return isinstance(merge, list) and len(merge) == 2 and all(is_text(1, MAX_TOKEN)(part) for part in merge)


def _is_merges(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_merge, value))


def _is_piece(piece: object) -> bool:
    if not (isinstance(piece, list) and len(piece) == 2 and is_text(0, MAX_TOKEN)(piece[0])):
        return False
    return isinstance(piece[1], int | float) and not isinstance(piece[1], bool) and math.isfinite(piece[1])


def _is_pieces(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MAX_IDS and all(map(_is_piece, value))


def _is_dropout(value: object) -> bool:
    return value is None or value == 0


_UNKNOWN = optional(is_text(1, MAX_TOKEN))
_AFFIX = optional(is_text(0, 16))

MODELS: Mapping[str, Mapping[str, Check]] = {
    "BPE": {
        "vocab": _is_vocab,
        "merges": _is_merges,
        "dropout": _is_dropout,  # another dropout would encode the same text differently each time
        "unk_token": _UNKNOWN,
        "continuing_subword_prefix": _AFFIX,
        "end_of_word_suffix": _AFFIX,
        "fuse_unk": is_bool,
        "byte_fallback": is_bool,
        "ignore_merges": is_bool,
    },
    "WordLevel": {"vocab": _is_vocab, "unk_token": _UNKNOWN},
    "WordPiece": {
        "vocab": _is_vocab,
        "unk_token": _UNKNOWN,
        "continuing_subword_prefix": _AFFIX,
        "max_input_chars_per_word": is_count(1, 1000),  # time is quadratic in it
    },
    "Unigram": {"vocab": _is_pieces, "unk_id": optional(is_count(0, MAX_IDS)), "byte_fallback": is_bool},
}
_ADDED: Mapping[str, Check] = {
    "id": is_count(0, MAX_IDS - 1),
    "content": is_text(1, 256),
    "single_word": is_bool,
    "lstrip": is_bool,
    "rstrip": is_bool,
    "normalized": is_bool,
    "special": is_bool,
}


def _check_ids(ids: Iterable[object]) -> None:
    seen: set[object] = set()
    for token_id in ids:
        if not is_count(0, MAX_IDS - 1)(token_id) or token_id in seen:
            raise BundleError(
                f"tokenizer.json: the id {token_id!r} is repeated or not in 0..{MAX_IDS - 1}; {_FOREIGN}."
            )
        seen.add(token_id)


def checked_model(model: Any) -> dict[str, Any]:
    """Return a copy of the ``model`` of a tokenizer.json.

    Raises:
        BundleError: if its type is unknown, or a field is unknown or out of range.
    """
    kind = model.get("type", "BPE") if isinstance(model, dict) else None
    if not isinstance(kind, str) or kind not in MODELS:
        raise BundleError(
            f"tokenizer.json: the model is {str(kind)[:40]!r}, not {', '.join(MODELS)}; {_FOREIGN}."
        )
    clean = checked_fields("model", model, MODELS[kind])
    if "vocab" not in clean:
        raise BundleError(f"tokenizer.json: the model has no vocab; {_FOREIGN}.")
    _check_ids(range(len(clean["vocab"])) if kind == "Unigram" else clean["vocab"].values())
    return clean


def unknown_id(model: Mapping[str, Any]) -> int | None:
    """Return the id that stands for what a checked model cannot express, if it has one."""
    known = (
        model.get("unk_id") if model.get("type") == "Unigram" else model["vocab"].get(model.get("unk_token"))
    )
    return known if isinstance(known, int) else None


def checked_added(added: Any, control_ids: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Return a copy of ``added_tokens`` in which every control token is marked special.

    Control tokens are those so marked, those whose id is in ``control_ids``, and those written ``<|name|>``:
    a file that forgets the mark would let a user's text become a control token.

    Raises:
        BundleError: if it is not a list of tokens of accepted fields.
    """
    if not isinstance(added or [], list) or len(added or []) > MAX_ADDED:
        raise BundleError(f"tokenizer.json: added_tokens is not a list of at most {MAX_ADDED}; {_FOREIGN}.")
    forced = set(control_ids)
    clean = []
    for token in added or []:
        if not (isinstance(token, dict) and {"id", "content"} <= token.keys()):
            raise BundleError(f"tokenizer.json: an added token lacks an id or a content; {_FOREIGN}.")
        copy = {**dict.fromkeys(_ADDED, False), **checked_fields("added token", token, _ADDED)}
        copy["special"] = copy["special"] or copy["id"] in forced or bool(_CONTROL.fullmatch(copy["content"]))
        clean.append(copy)
    _check_ids(token["id"] for token in clean)
    return clean


def template_prefix(processor: Any) -> list[str]:
    """Return the tokens that a post-processor puts before a text; what it would put after is left out.

    Generation continues a text, so an end token after it would be wrong.

    Raises:
        BundleError: if the post-processor is of another type than ByteLevel or TemplateProcessing.
    """
    kind = processor.get("type") if isinstance(processor, dict) else processor
    if kind is None or kind == "ByteLevel":
        return []
    try:
        if kind == "Sequence":
            return [token for member in processor["processors"][:4] for token in template_prefix(member)]
        if kind == "TemplateProcessing":
            return _leading_specials(processor["single"])
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise BundleError(f"tokenizer.json: the post-processor {kind} is malformed; {_FOREIGN}.") from exc
    raise BundleError(f"tokenizer.json: the post-processor is {str(kind)[:40]!r}; {_FOREIGN}.")


def _leading_specials(pieces: list[dict[str, Any]]) -> list[str]:
    tokens: list[str] = []
    for piece in pieces[: MAX_PREFIX + 1]:
        if "SpecialToken" not in piece:
            break
        tokens.append(str(piece["SpecialToken"]["id"]))
    return tokens
