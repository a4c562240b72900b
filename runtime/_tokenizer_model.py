"""The model, the added tokens and the template of a tokenizer.json, checked and reduced to what is used.

    vocabulary = checked_model(values["model"])           # BPE, WordLevel, WordPiece or Unigram
    added = checked_added(values.get("added_tokens"))
    prefix = template_prefix(values.get("post_processor"))

Refused: other models, ids that are negative, repeated or beyond MAX_IDS, tokens above MAX_TOKEN characters.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from gpt_onnx.errors import BundleError

from ._tokenizer_parts import REMEDY, Check, checked_fields, is_bool, is_count, is_text, optional

MAX_IDS = 1 << 21
MAX_TOKEN = 4096  # characters
MAX_ADDED = 100_000
MAX_PREFIX = 16  # tokens that a template puts before a text

_CONTROL = re.compile(r"<\|[^<>|\s]{1,64}\|>")


def _are_tokens(tokens: Collection[object]) -> bool:
    """Whether all are strings of bounded length; whole collections at once, as there are 100,000 and more."""
    return (
        set(map(type, tokens)) <= {str}
        and max(map(len, cast("Collection[str]", tokens)), default=0) <= MAX_TOKEN
    )


def _is_vocab(value: object) -> bool:
    return isinstance(value, dict) and _are_tokens(value)


def _pair(merge: object) -> object:
    return merge.split(" ") if isinstance(merge, str) else merge


def _is_merges(value: object) -> bool:
    """Whether it is a list of pairs of tokens, each written as a list or with a space between."""
    if not isinstance(value, list):
        return False
    pairs = list(map(_pair, value))
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return False
    tokens = [token for pair in pairs for token in cast("list[object]", pair)]
    return all(tokens) and _are_tokens(tokens)


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


def _are_ids(ids: Collection[object]) -> bool:
    """Whether all are different and in range, asked of the whole at once; booleans are no integers here."""
    if not set(map(type, ids)) <= {int}:
        return False
    numbers = cast("Collection[int]", ids)
    return len(set(numbers)) == len(numbers) and (not numbers or 0 <= min(numbers) <= max(numbers) < MAX_IDS)


def _check_ids(ids: Collection[object]) -> None:
    if _are_ids(ids):
        return
    is_id = is_count(0, MAX_IDS - 1)
    counts = Counter(map(repr, ids))
    wrong = next(token_id for token_id in ids if not is_id(token_id) or counts[repr(token_id)] > 1)
    raise BundleError(f"tokenizer.json: the id {wrong!r} is repeated or not in 0..{MAX_IDS - 1}; {REMEDY}.")


def _check_prefix(model: Mapping[str, Any]) -> None:
    """Refuse merges whose second part lacks the prefix of continuations: the library would panic."""
    prefix = model.get("continuing_subword_prefix") or ""
    for merge in model.get("merges", ()) if prefix else ():
        _, second = cast("list[str]", _pair(merge))
        if not second.startswith(prefix):
            raise BundleError(
                f"tokenizer.json: a merge ends with {second[:40]!r}, without {prefix!r}; {REMEDY}."
            )


def model_ids(model: Mapping[str, Any]) -> Collection[int]:
    """Return the ids of a model's vocabulary."""
    vocab = model["vocab"]
    return range(len(vocab)) if model.get("type") == "Unigram" else cast("Collection[int]", vocab.values())


def checked_model(model: Any) -> dict[str, Any]:
    """Return a copy of the ``model`` of a tokenizer.json.

    Raises:
        BundleError: if its type is unknown, or a field is unknown or out of range.
    """
    kind = model.get("type", "BPE") if isinstance(model, dict) else None
    if not isinstance(kind, str) or kind not in MODELS:
        raise BundleError(
            f"tokenizer.json: the model is {str(kind)[:40]!r}, not {', '.join(MODELS)}; {REMEDY}."
        )
    clean = checked_fields("model", model, MODELS[kind])
    if "vocab" not in clean:
        raise BundleError(f"tokenizer.json: the model has no vocab; {REMEDY}.")
    _check_prefix(clean)
    _check_ids(model_ids(clean))
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
        raise BundleError(f"tokenizer.json: added_tokens is not a list of at most {MAX_ADDED}; {REMEDY}.")
    forced = set(control_ids)
    clean = []
    for token in added or []:
        if not (isinstance(token, dict) and {"id", "content"} <= token.keys()):
            raise BundleError(f"tokenizer.json: an added token lacks an id or a content; {REMEDY}.")
        copy = {**dict.fromkeys(_ADDED, False), **checked_fields("added token", token, _ADDED)}
        copy["special"] = copy["special"] or copy["id"] in forced or bool(_CONTROL.fullmatch(copy["content"]))
        clean.append(copy)
    _check_ids([token["id"] for token in clean])
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
            tokens = _leading_specials(processor["single"])
            if all(map(is_text(1, MAX_TOKEN), tokens)):
                return tokens
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise BundleError(f"tokenizer.json: the post-processor {kind} is malformed; {REMEDY}.") from exc
    raise BundleError(f"tokenizer.json: the post-processor {str(kind)[:40]!r} is not accepted; {REMEDY}.")


def _leading_specials(pieces: list[dict[str, Any]]) -> list[str]:
    tokens: list[str] = []
    for piece in pieces[: MAX_PREFIX + 1]:
        if "SpecialToken" not in piece:
            break
        tokens.append(piece["SpecialToken"]["id"])
    return tokens
