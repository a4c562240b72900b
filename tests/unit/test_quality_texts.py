"""Files on their way into a model: the ids of the whole text, a piece at a time, and what is refused."""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt_onnx.runtime.quality.texts as texts
from gpt_onnx.errors import InputError
from gpt_onnx.runtime.quality.texts import decoded, open_tokens, tokens_of_text
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer
from tests.made_tokenizers import PIECES, TRAINED, WORDS, load

SOTU = Path(__file__).parents[2] / "models" / "sotu"
SPEECH = SOTU / "validation.txt"


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return load_tokenizer(SOTU / "tokenizer.json")


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tmp_path_factory.mktemp("tokenizer"), TRAINED)


def read(source: Any, tokenizer: Tokenizer | None, vocab_size: int = 10**6) -> tuple[list[int], list[int]]:
    """All ids and sizes of a file."""
    with open_tokens(source, tokenizer, vocab_size) as found:
        chunks = list(found.chunks)
    sizes = [size for chunk in chunks for size in ([] if chunk.sizes is None else chunk.sizes.tolist())]
    return [token for chunk in chunks for token in chunk.ids.tolist()], sizes


def test_a_real_text_in_pieces_has_the_ids_of_the_whole(
    bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bpe.encode(SPEECH.read_text(encoding="utf-8"))
    for piece in (texts.PIECE, 9001):
        monkeypatch.setattr(texts, "PIECE", piece)
        ids, sizes = read(SPEECH, bpe)
        assert ids == whole
        assert sum(sizes) == SPEECH.stat().st_size


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=200), st.integers(17, 60))
def test_any_text_in_pieces_has_the_bytes_of_the_whole(letters: Tokenizer, text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "OVERLAP", 16)
        parts = [text[low : low + piece] for low in range(0, len(text), piece)]
        chunks = list(tokens_of_text(parts, letters, 300))
    ids = [int(token) for chunk in chunks for token in chunk.ids]
    assert letters.decode(ids) == text
    assert sum(int(chunk.sizes.sum()) for chunk in chunks if chunk.sizes is not None) == len(text.encode())


@pytest.mark.parametrize("values", [TRAINED, WORDS, PIECES], ids=["bytes", "words", "pieces"])
def test_every_kind_of_tokenizer_reads_words_in_pieces_as_in_one(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = load(tmp_path, values)
    monkeypatch.setattr(texts, "OVERLAP", 64)
    text = "hello you  hi\n\nhello, hi hi you\t— déjà 日本 🙂 \n" * 40
    parts = [text[low : low + 301] for low in range(0, len(text), 301)]
    ids = [int(token) for chunk in tokens_of_text(parts, tokenizer, 10**6) for token in chunk.ids]
    assert ids == tokenizer.encode(text)[len(tokenizer.prefix) :]


def test_a_word_without_end_is_read_all_the_same(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PIECE", 4096)
    _, sizes = read(io.BytesIO(b"a" * 30_000), bpe)
    assert sum(sizes) == 30_000


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60) | st.binary(max_size=9).map(codecs.BOM_UTF8.__add__), st.integers(1, 9))
def test_text_is_decoded_as_in_one_piece_or_refused_at_the_same_byte(data: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "PIECE", piece)
        try:
            expected = data.decode("utf-8")
        except UnicodeDecodeError as exc:
            with pytest.raises(InputError, match=rf"x is not UTF-8 at byte {exc.start};"):
                list(decoded(io.BytesIO(data), "x"))
        else:
            assert "".join(decoded(io.BytesIO(data), "x")) == expected.removeprefix("\ufeff")


def test_a_mark_before_a_text_is_no_text(bpe: Tokenizer) -> None:
    text = "My fellow citizens, \ufeff"  # elsewhere it is a character like others
    plain = read(io.BytesIO(text.encode()), bpe)
    assert read(io.BytesIO(codecs.BOM_UTF8 + text.encode()), bpe) == plain
    assert sum(plain[1]) == len(text.encode())


def test_no_more_than_a_piece_of_a_stream_is_held(bpe: Tokenizer) -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            assert 0 < size <= texts.PIECE
            self.given += size
            return (b"My fellow citizens. " * size)[:size]

    stream: BinaryIO = Endless()  # type: ignore[assignment]
    with open_tokens(stream, bpe, 4096) as found:
        assert found.size is None
        for _ in range(4):
            next(found.chunks)
    assert stream.given <= 6 * texts.PIECE  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
def test_ids_are_read_as_numpy_wrote_them(
    tmp_path: Path, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "PIECE", 7)
    np.save(tmp_path / "ids.npy", np.arange(20, dtype=dtype))
    assert read(tmp_path / "ids.npy", None) == (list(range(20)), [])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3), np.int64), r"int64 of shape \(2, 3\); one list of integers"),
        (np.zeros(3), "float64 of shape"),
        (np.array([{}]), "cannot be read as .npy"),
        (np.array([1, 50]), "id 50 at index 1; ids must be from 0 to 49"),
        (np.array([-1]), "id -1 at index 0"),
    ],
)
def test_a_file_of_anything_but_ids_is_refused(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "ids.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        read(tmp_path / "ids.npy", None, 50)


@pytest.mark.parametrize("size", [6, 8, 40, 100])
def test_a_file_of_ids_that_is_cut_short_is_refused(tmp_path: Path, size: int) -> None:
    np.save(tmp_path / "ids.npy", np.arange(20))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "ids.npy").read_bytes()[:size])
    with pytest.raises(InputError, match="cannot be read as"):
        read(tmp_path / "cut.npy", None)


def test_an_empty_file_has_no_tokens(tmp_path: Path, bpe: Tokenizer) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    np.save(tmp_path / "empty.npy", np.zeros(0, np.int64))
    assert read(tmp_path / "empty.txt", bpe) == ([], [])
    assert read(tmp_path / "empty.npy", None) == ([], [])


def test_text_that_cannot_be_read_is_refused(tmp_path: Path, bpe: Tokenizer) -> None:
    with pytest.raises(InputError, match="missing could not be read: No such file"):
        read(tmp_path / "missing", bpe)
    with pytest.raises(InputError, match="could not be read: Is a directory"):
        read(tmp_path, bpe)
    with pytest.raises(InputError, match=r"no tokenizer\.json for it"):
        read(SPEECH, None)
    with pytest.raises(InputError, match="ids must be from 0 to 99"):
        read(SPEECH, bpe, 100)
