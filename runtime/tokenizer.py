"""Text to token ids and back, with the tokenizer.json of a bundle, which is not trusted.

    tokenizer = load_tokenizer(bundle.file("tokenizer.json"))
    ids = tokenizer.encode("My fellow citizens,")
    tokenizer.decode(ids)

A user's text never becomes a control token: what looks like one is encoded letter by letter, and where the
tokenizer cannot do that the text is refused. Padding and truncation of the file are dropped; parts that are
not on the lists of ``_tokenizer_parts`` and ``_tokenizer_model`` are refused; so is text of more than
MAX_TEXT characters.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from gpt_onnx.errors import BundleError, GptOnnxError, InputError

from ._json import read_object
from ._tokenizer_model import checked_added, checked_model, model_ids, template_prefix, unknown_id
from ._tokenizer_parts import DECODERS, NORMALIZERS, PRE_TOKENIZERS, checked_part
from .sampling import Mask

MAX_FILE = 64 << 20  # bytes; the largest in use have 33 MB
MAX_TEXT = 2_000_000  # characters; about two seconds of work


@contextlib.contextmanager
def _rust_errors(error: type[GptOnnxError], message: str) -> Iterator[None]:
    """Turn what the tokenizers library raises into ``error``, its panics included.

    A panic on the Rust side arrives as PanicException, which is no Exception and is told by its name only.
    """
    try:
        yield
    except BaseException as exc:
        if not isinstance(exc, Exception) and type(exc).__name__ != "PanicException":
            raise
        raise error(f"{message}: {str(exc)[:200]}.") from exc


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tokenizer:
    """A checked tokenizer; ``load_tokenizer`` makes one."""

    rust: tokenizers.Tokenizer = field(repr=False)
    """The tokenizers library's object."""
    ids: frozenset[int] = field(repr=False)
    """Every id that stands for a token; there may be holes."""
    control_ids: frozenset[int]
    """Ids that steer the model and are no text: they are not shown, and a text never becomes one."""
    unknown_id: int | None
    """The id of what the vocabulary cannot express."""
    prefix: tuple[int, ...]
    """Ids that the template puts before a text."""
    byte_level: bool
    """Whether each token is a sequence of bytes, written in the characters of GPT-2."""

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.ids) + 1

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, the template's prefix before them.

        Raises:
            InputError: if the text is too long, not Unicode, or cannot be expressed without a control token.
        """
        return [*self.prefix, *self._encoded(text).ids]

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text without the prefix, and the characters of it that each stands for.

        Raises:
            InputError: as for ``encode``.
        """
        found = self._encoded(text)
        return found.ids, found.offsets

    def _encoded(self, text: str) -> tokenizers.Encoding:
        if len(text) > MAX_TEXT:
            raise InputError(f"the text has {len(text)} characters, above the limit of {MAX_TEXT}; split it.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as exc:
            raise InputError(
                f"the text is not valid Unicode at character {exc.start}; give it as UTF-8."
            ) from exc
        with _rust_errors(InputError, "the tokenizer could not encode the text"):
            found = self.rust.encode(text, add_special_tokens=False)
        self._refuse_control(found.ids)
        return found

    def _refuse_control(self, ids: Iterable[int]) -> None:
        for token_id in (self.control_ids - {self.unknown_id}).intersection(ids):
            raise InputError(
                f"the text holds {self.token(token_id)!r}, which this tokenizer can only read as a control "
                "token; take it out, or give ids."
            )

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; control tokens and ids that the tokenizer lacks have none."""
        known = [int(token_id) for token_id in ids if token_id in self.ids]
        with _rust_errors(BundleError, "tokenizer.json: the tokenizer could not decode"):
            return str(self.rust.decode(known, skip_special_tokens=True))

    def token(self, token_id: int) -> str | None:
        """Return how a token is written in the vocabulary, or None for an id without one."""
        return self.rust.id_to_token(token_id) if token_id in self.ids else None

    def id_of(self, token: str) -> int | None:
        """Return the id of a token as it is written in the vocabulary, or None."""
        return self.rust.token_to_id(token)

    def allowed(self, vocab_size: int) -> Mask | None:
        """Return which of a model's ids (vocab_size,) have a token; None where all of them do.

        Raises:
            BundleError: if the tokenizer and the model have no id in common.
        """
        mask = np.zeros(vocab_size, dtype=np.bool_)
        mask[[token_id for token_id in self.ids if token_id < vocab_size]] = True
        if not mask.any():
            raise BundleError(f"tokenizer.json has no token below {vocab_size}, the model's vocabulary size.")
        return None if mask.all() else mask


def _clean(values: dict[str, Any], control_ids: Iterable[int]) -> dict[str, Any]:
    """Return a tokenizer.json of accepted parts; padding, truncation and the template are gone."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": checked_added(values.get("added_tokens"), control_ids),
        "normalizer": checked_part("normalizer", values.get("normalizer"), NORMALIZERS),
        "pre_tokenizer": checked_part("pre_tokenizer", values.get("pre_tokenizer"), PRE_TOKENIZERS),
        "post_processor": None,
        "decoder": checked_part("decoder", values.get("decoder"), DECODERS),
        "model": checked_model(values.get("model")),
    }


def _build(clean: dict[str, Any]) -> tokenizers.Tokenizer:
    with _rust_errors(BundleError, "tokenizer.json is refused by the tokenizers library"):
        rust = tokenizers.Tokenizer.from_str(json.dumps(clean, allow_nan=False, ensure_ascii=False))
        rust.encode_special_tokens = True  # "<|endoftext|>" in a text is thirteen characters
    for token in clean["added_tokens"]:
        if rust.token_to_id(token["content"]) != token["id"]:
            raise BundleError(
                f"tokenizer.json gives the added token {token['content'][:40]!r} the id {token['id']}, "
                f"and its place in the vocabulary is {rust.token_to_id(token['content'])}; repair the file."
            )
    return rust


def _prefix_ids(rust: tokenizers.Tokenizer, tokens: Sequence[str]) -> tuple[int, ...]:
    with _rust_errors(BundleError, "tokenizer.json: the template cannot be read"):
        ids = [rust.token_to_id(token) for token in tokens]
    if None in ids:
        raise BundleError(f"tokenizer.json: the template begins with {tokens}, which the vocabulary lacks.")
    return tuple(token_id for token_id in ids if token_id is not None)


def load_tokenizer(path: Path, control_ids: Iterable[int] = ()) -> Tokenizer:
    """Read a tokenizer.json as hostile input.

    Args:
        path: the file.
        control_ids: ids that are control tokens whether the file marks them or not, such as end-of-text.

    Raises:
        BundleError: if the file is damaged, or has a part that is not accepted.
    """
    values = read_object(path, limit=MAX_FILE)
    clean = _clean(values, control_ids)
    rust = _build(clean)
    ids = frozenset([*model_ids(clean["model"]), *(token["id"] for token in clean["added_tokens"])])
    if not ids:
        raise BundleError(f"{path} has no tokens; export the bundle with a trained tokenizer.")
    return Tokenizer(
        rust=rust,
        ids=ids,
        control_ids=frozenset(token["id"] for token in clean["added_tokens"] if token["special"]),
        unknown_id=unknown_id(clean["model"]),
        prefix=_prefix_ids(rust, template_prefix(values.get("post_processor"))),
        byte_level=(clean["decoder"] or {}).get("type") == "ByteLevel",
    )
