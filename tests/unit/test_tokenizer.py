"""Loading a tokenizer.json that is not trusted, and text that must not become control tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer

from gpt_onnx.errors import BundleError, InputError
from gpt_onnx.runtime.tokenizer import MAX_TEXT, Tokenizer
from tests.made_tokenizers import EOT, PIECES, TRAINED, WORDS, Edit, load


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tmp_path_factory.mktemp("tokenizer"), TRAINED)


def peer() -> RustTokenizer:
    return RustTokenizer.from_str(json.dumps(TRAINED))


@settings(deadline=None)
@given(text=st.text(max_size=60).filter(lambda text: "<|" not in text))
def test_ids_are_those_of_the_tokenizers_library(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode(text) == peer().encode(text).ids


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_decoding_returns_the_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_control_token_in_a_text_is_letters(tokenizer: Tokenizer) -> None:
    assert peer().encode(f"a{EOT}b").ids.count(0) == 1  # what the library does unless told otherwise
    ids = tokenizer.encode(f"a{EOT}b")
    assert 0 not in ids
    assert tokenizer.decode(ids) == f"a{EOT}b"


def test_a_control_token_that_the_file_forgot_to_mark_is_still_letters(tmp_path: Path) -> None:
    def unmark(values: dict[str, Any]) -> None:
        values["added_tokens"][0]["special"] = False

    tokenizer = load(tmp_path, TRAINED, unmark)
    assert 0 not in tokenizer.encode(EOT)
    assert tokenizer.control_ids == {0}


def test_ids_named_as_control_are_control(tmp_path: Path) -> None:
    size = len(TRAINED["model"]["vocab"])
    add: Edit = lambda values: values.update(added_tokens=[{"id": size, "content": "END"}])  # noqa: E731
    assert size in load(tmp_path, TRAINED, add).encode("END")  # an ordinary added token
    assert size not in load(tmp_path, TRAINED, add, control_ids=[size]).encode("END")


def test_text_that_can_only_be_a_control_token_is_refused(tmp_path: Path) -> None:
    words = load(tmp_path, WORDS)
    assert words.encode("hello stranger") == [2, 0]
    with pytest.raises(InputError, match=r"'\[SEP\]'.*control token"):
        words.encode("hello [SEP]")


def test_control_tokens_are_not_shown(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([0, *tokenizer.encode("hi"), 0]) == "hi"


def test_ids_without_a_token_have_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([10**6, -1, *tokenizer.encode("hi")]) == "hi"
    assert tokenizer.token(10**6) is None


def test_allowed_marks_holes_and_ids_past_the_tokenizer(tmp_path: Path) -> None:
    mask = load(tmp_path, WORDS).allowed(8)
    assert mask is not None
    assert mask.tolist() == [True, True, True, False, False, True, False, False]


def test_allowed_is_none_where_every_id_has_a_token(tokenizer: Tokenizer) -> None:
    assert tokenizer.allowed(tokenizer.size) is None
    assert tokenizer.allowed(tokenizer.size - 5) is None


def test_a_tokenizer_that_shares_no_id_with_the_model_is_refused(tmp_path: Path) -> None:
    words = load(tmp_path, WORDS, lambda values: values["model"].update(vocab={"[UNK]": 9, "[SEP]": 1}))
    with pytest.raises(BundleError, match="no token below 1"):
        words.allowed(1)


def test_padding_and_truncation_are_dropped(tmp_path: Path) -> None:
    def pad(values: dict[str, Any]) -> None:
        values["padding"] = {
            "strategy": {"Fixed": 10**12},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": EOT,
        }
        values["truncation"] = {
            "direction": "Right",
            "max_length": 1,
            "strategy": "LongestFirst",
            "stride": 0,
        }

    assert load(tmp_path, TRAINED, pad).encode("hello") == peer().encode("hello").ids


def test_a_template_puts_its_first_tokens_before_a_text_and_none_after(tmp_path: Path) -> None:
    def template(values: dict[str, Any]) -> None:
        end = {"SpecialToken": {"id": EOT, "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        values["post_processor"] = {"type": "TemplateProcessing", "single": [end, text, end], "pair": []}

    assert load(tmp_path, TRAINED, template).encode("hi") == [0, *peer().encode("hi").ids]


def test_an_older_file_without_the_types_and_flags_of_today_is_read(tmp_path: Path) -> None:
    def old(values: dict[str, Any]) -> None:
        del values["model"]["type"], values["model"]["ignore_merges"], values["model"]["byte_fallback"]
        del values["pre_tokenizer"]["use_regex"], values["decoder"]["use_regex"]
        values["model"]["merges"] = [" ".join(pair) for pair in values["model"]["merges"]]

    assert load(tmp_path, TRAINED, old).encode("hello state") == peer().encode("hello state").ids


def test_a_unigram_model_encodes_and_decodes(tmp_path: Path) -> None:
    pieces = load(tmp_path, PIECES)
    assert pieces.encode("hi hiz") == [3, 1, 2, 3, 1, 2, 0]
    assert pieces.decode([3, 1, 2, 3, 1]) == "hi h"


def test_text_that_is_too_long_or_not_unicode_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InputError, match="characters, above the limit"):
        tokenizer.encode("a" * (MAX_TEXT + 1))
    with pytest.raises(InputError, match="not valid Unicode at character 2"):
        tokenizer.encode("ab\udce9")


def test_a_word_that_the_vocabulary_cannot_express_is_an_input_error(tmp_path: Path) -> None:
    words = load(tmp_path, WORDS, lambda values: values["model"].update(unk_token="[NONE]"))
    with pytest.raises(InputError, match="could not encode the text"):
        words.encode("stranger")
