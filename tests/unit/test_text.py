"""Streaming text: characters stay whole, stop strings stay hidden, and the pieces join to the full text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpt_onnx.errors import InputError
from gpt_onnx.runtime._text import StopStrings, TextStream, byte_of_character
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer

EOT = "<|endoftext|>"
ALPHABET = "abc é日😀\n"
texts = st.text(alphabet=ALPHABET, max_size=40)
stops = st.lists(st.text(alphabet=ALPHABET, min_size=1, max_size=5), max_size=3)


def save(folder: Path, rust: RustTokenizer) -> Tokenizer:
    path = folder / "tokenizer.json"
    path.write_text(rust.to_str(), encoding="utf-8")
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    rust = RustTokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=275, special_tokens=[EOT], initial_alphabet=alphabet, show_progress=False
    )
    rust.train_from_iterator(["ab bc 日本 abc"] * 9, trainer)
    rust.add_tokens(["naïve 日"])
    return save(tmp_path_factory.mktemp("byte"), rust)


@pytest.fixture(scope="module")
def metaspace(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A vocabulary in the manner of Llama: pieces, spaces as ▁, and bytes for the rest."""
    tokens = [EOT, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abc", "▁a", "日"]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    rust = RustTokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a")], byte_fallback=True))
    rust.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    replace, strip = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
    rust.decoder = decoders.Sequence([replace, decoders.ByteFallback(), decoders.Fuse(), strip])
    rust.add_special_tokens([EOT])
    return save(tmp_path_factory.mktemp("metaspace"), rust)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    rust = RustTokenizer(models.WordPiece(vocab={"un": 0, "##ion": 1, "state": 2, ".": 3}, unk_token="."))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.decoder = decoders.WordPiece()
    return save(tmp_path_factory.mktemp("words"), rust)


def streamed(stream: TextStream, ids: Iterable[int]) -> list[str]:
    pieces = []
    for token_id in ids:
        pieces.append(stream.push(token_id))
        if stream.stopped:
            break
    return [*pieces, stream.flush()]


def cut(text: str, stop: list[str]) -> str:
    """The text before the stop string that is complete first, looked at character by character."""
    for end in range(len(text) + 1):
        complete = [word for word in stop if text[:end].endswith(word)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


@settings(deadline=None)
@given(text=texts, stop=stops)
def test_pieces_join_to_the_text_cut_at_the_first_stop(
    byte_level: Tokenizer, text: str, stop: list[str]
) -> None:
    pieces = streamed(TextStream(byte_level, stop=stop), byte_level.encode(text))
    assert "".join(pieces) == cut(text, stop)


@settings(deadline=None)
@given(data=st.data(), stop=stops)
def test_any_ids_join_to_what_the_library_decodes(
    byte_level: Tokenizer, data: st.DataObject, stop: list[str]
) -> None:
    ids = data.draw(st.lists(st.integers(0, byte_level.size + 3), max_size=30))
    full = byte_level.rust.decode([token_id for token_id in ids if token_id < byte_level.size])
    assert "".join(streamed(TextStream(byte_level, stop=stop), ids)) == cut(full, stop)


@settings(deadline=None)
@given(data=st.data(), stop=stops)
def test_any_pieces_with_bytes_join_to_what_the_library_decodes(
    metaspace: Tokenizer, data: st.DataObject, stop: list[str]
) -> None:
    ids = data.draw(st.lists(st.integers(0, metaspace.size - 1), max_size=30))
    full = metaspace.rust.decode(ids)
    assert "".join(streamed(TextStream(metaspace, stop=stop), ids)) == cut(full, stop)


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 3), max_size=20))
def test_words_join_to_what_the_library_decodes(words: Tokenizer, ids: list[int]) -> None:
    assert "".join(streamed(TextStream(words), ids)) == words.rust.decode(ids)


@settings(deadline=None)
@given(pieces=st.lists(texts, max_size=8), stop=stops)
def test_the_cut_does_not_depend_on_how_the_text_is_chunked(pieces: list[str], stop: list[str]) -> None:
    gate = StopStrings(stop)
    shown = "".join(gate.push(piece) for piece in pieces) + gate.flush()
    assert shown == cut("".join(pieces), stop)


@settings(deadline=None)
@given(pieces=st.lists(texts, max_size=8), stop=stops)
def test_no_text_is_kept_back_without_need(pieces: list[str], stop: list[str]) -> None:
    gate = StopStrings(stop)
    shown, given = "", ""
    for piece in pieces:
        shown, given = shown + gate.push(piece), given + piece
        kept = given[len(shown) :]
        assert gate.stopped or not kept or any(word.startswith(kept) for word in stop)


@settings(deadline=None)
@given(text=st.text(alphabet="日本😀é👩‍👩‍👧", min_size=1, max_size=12))
def test_no_piece_holds_a_part_of_a_character(byte_level: Tokenizer, text: str) -> None:
    pieces = streamed(TextStream(byte_level), byte_level.encode(text))
    assert not any("\ufffd" in piece for piece in pieces)
    assert all(text.startswith("".join(pieces[:count])) for count in range(len(pieces)))


def test_an_emoji_of_four_tokens_appears_with_its_last(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("😀")
    assert streamed(TextStream(byte_level), ids) == ["", "", "", "😀", ""]


def test_bytes_that_never_become_a_character_are_replaced_at_the_end(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a😀")[:3]
    assert streamed(TextStream(byte_level), ids) == ["a", "", "", "\ufffd"]


def test_a_context_that_ends_within_a_character_is_completed(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a😀b")
    assert "".join(streamed(TextStream(byte_level, context=ids[:3]), ids[3:])) == "😀b"


def test_a_continuation_keeps_the_space_that_a_beginning_loses(metaspace: Tokenizer) -> None:
    ids = metaspace.encode("a a")
    assert "".join(streamed(TextStream(metaspace), ids[1:])) == "a"
    assert "".join(streamed(TextStream(metaspace, context=ids[:1]), ids[1:])) == " a"


def test_control_tokens_have_no_text(byte_level: Tokenizer, metaspace: Tokenizer) -> None:
    assert streamed(TextStream(byte_level), [0, 0]) == ["", "", ""]
    assert streamed(TextStream(metaspace), [0, 0]) == ["", "", ""]


def push_all(stop: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    gate = StopStrings(stop)
    return [*(gate.push(piece) for piece in pieces), gate.flush()], gate.stopped


def test_a_stop_string_over_several_pieces_is_never_shown() -> None:
    assert push_all(["###"], ["ab#", "#", "#c"]) == (["ab", "", "", ""], True)


def test_a_stop_string_at_the_very_beginning_leaves_nothing() -> None:
    assert push_all(["ab"], ["a", "b", "c"]) == (["", "", "", ""], True)


def test_a_beginning_of_a_stop_string_is_shown_once_it_is_none() -> None:
    assert push_all(["abc"], ["ab", "d"]) == (["", "abd", ""], False)


def test_what_was_kept_back_is_shown_at_the_end() -> None:
    assert push_all(["abc"], ["xab"]) == (["x", "ab"], False)


def test_the_stop_string_that_is_complete_first_wins() -> None:
    assert push_all(["abcd", "c"], ["abcd"]) == (["ab", ""], True)


def test_of_stop_strings_complete_together_the_longest_wins() -> None:
    assert push_all(["c", "bc"], ["abc"]) == (["a", ""], True)


def test_a_stop_string_that_overlaps_itself_is_found() -> None:
    assert push_all(["aab"], ["aa", "ab"]) == (["", "a", ""], True)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InputError, match="stop string is empty"):
        StopStrings(["x", ""])


def test_the_byte_table_is_that_of_the_library() -> None:
    table = byte_of_character()
    assert sorted(table) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(table.values()) == list(range(256))
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for character in "\x00 ~é\x7f\xad":
        [(written, _)] = split.pre_tokenize_str(character)
        assert bytes(table[part] for part in written) == character.encode()


def test_the_tokenizer_file_is_what_the_fixtures_say(byte_level: Tokenizer, metaspace: Tokenizer) -> None:
    assert byte_level.byte_level
    assert not metaspace.byte_level
    assert json.loads(byte_level.rust.to_str())["padding"] is None
