"""Tokens of files of any size, a piece at a time.

    with open_tokens("speech.txt", tokenizer, vocab_size) as tokens:      # or token ids in a .npy file
        for chunk in tokens.chunks: ...

Text is UTF-8 and is never held as a whole. Pieces of it overlap by OVERLAP characters, and are joined where
both give a token that begins at the same place, as near as can be to the middle of what they share. So each
token was made with hundreds of characters before and after it in view, and the ids are those of the whole
text: for every tokenizer that first cuts a text into words, as long as no word is longer than that, and,
but for rare accidents at a joint, for those that do not.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from gpt_onnx._user_text import without_mark
from gpt_onnx.errors import InputError
from gpt_onnx.runtime._checks import as_ids
from gpt_onnx.runtime.tokenizer import Tokenizer

from .windows import Ids, Tokens

PIECE = 2**16  # bytes read, or ids taken, at once
OVERLAP = 2**11  # characters
NUMPY_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFile:
    """A file on its way into a model."""

    name: str
    chunks: Iterator[Tokens]
    size: int | None
    """Bytes of text, or tokens where there is no text; None for a stream that does not tell."""
    is_text: bool


def decoded(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the text of a stream, piece by piece, without the mark that may stand before it.

    Raises:
        InputError: if it is not UTF-8, naming the byte.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    before, is_start = 0, True
    while True:
        data = stream.read(PIECE)
        waiting = len(decoder.getstate()[0])  # bytes of a character that is not complete
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as exc:
            raise InputError(
                f"{name} is not UTF-8 at byte {before - waiting + exc.start}; convert it, for example with "
                "iconv."
            ) from exc
        before += len(data)
        if text and is_start:
            text, is_start = without_mark(text), False
        if text:
            yield text
        if not data:
            return


def _byte_ends(text: str) -> Ids:
    """Return where each character ends in UTF-8, after a 0: (len(text) + 1,)."""
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    widths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Ids and the bytes of the text where each begins and ends."""

    ids: Ids
    starts: Ids
    ends: Ids

    @classmethod
    def of(cls, text: str, at: int, tokenizer: Tokenizer) -> _Encoded:
        """Encode a piece of text that begins at byte ``at``."""
        ids, spans = tokenizer.encode_with_spans(text)
        places = at + _byte_ends(text)
        starts, ends = np.asarray(spans, np.int64).reshape(-1, 2).T
        return cls(np.asarray(ids, np.int64), places[starts], np.maximum.accumulate(places[ends]))

    def __getitem__(self, part: NDArray[np.bool_]) -> _Encoded:
        return _Encoded(self.ids[part], self.starts[part], self.ends[part])


def _joint(left: _Encoded, right: _Encoded, first: int, last: int) -> int:
    """Return the byte where to leave one encoding for the next, between two bytes."""
    middle = (first + last) // 2
    common = np.intersect1d(left.starts, right.starts)
    common = common[(common > first) & (common < last)]
    if common.size == 0:
        return middle
    return int(common[np.abs(common - middle).argmin()])


def _encodings(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[_Encoded]:
    """Yield the tokens of a text that comes in pieces."""
    left: _Encoded | None = None
    shared, at = "", 0
    for piece in texts:
        text = shared + piece
        right = _Encoded.of(text, at, tokenizer)
        if left is not None:
            cut = _joint(left, right, at, at + len(shared.encode()))
            yield left[left.starts < cut]
            right = right[right.starts >= cut]
        left, shared = right, text[-OVERLAP:]
        at += len(text.encode()) - len(shared.encode())
    if left is not None:
        yield left


def tokens_of_text(texts: Iterable[str], tokenizer: Tokenizer, vocab_size: int) -> Iterator[Tokens]:
    """Yield the tokens of a text, without what the tokenizer puts before one.

    Args:
        texts: The text in pieces; all but the last longer than OVERLAP.
        tokenizer: Theirs.
        vocab_size: Of the model.

    Raises:
        InputError: if the text cannot be expressed, or the model lacks one of its tokens.
    """
    before = 0
    for found in _encodings(texts, tokenizer):
        if found.ids.size:
            ids = as_ids(found.ids, vocab_size, "the text")
            ends = np.maximum(found.ends, before)
            yield Tokens(ids, np.diff(ends, prepend=before))
            before = int(ends[-1])


def ids_in(path: Path) -> NDArray[np.integer]:
    """Map the ids of a .npy file.

    Raises:
        InputError: if it holds anything else than a list of integers.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as exc:
        raise InputError(f"{path} cannot be read as .npy: {exc}; write it with numpy.save.") from exc
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"{path} holds {array.dtype} of shape {array.shape}; one list of integers, the token ids, is "
            "needed."
        )
    return np.asarray(array) if array.size == 0 else array


def tokens_of_ids(ids: NDArray[np.integer], vocab_size: int, name: str) -> Iterator[Tokens]:
    """Yield token ids in pieces.

    Raises:
        InputError: if one is outside the vocabulary.
    """
    for low in range(0, ids.size, PIECE):
        where = f"{name} from {low} on" if low else name
        yield Tokens(as_ids(np.asarray(ids[low : low + PIECE]), vocab_size, where), None)


def _text_file(stream: BinaryIO, name: str, tokenizer: Tokenizer | None, vocab_size: int) -> TokenFile:
    if tokenizer is None:
        raise InputError(
            f"{name} is read as text, and there is no tokenizer.json for it; give token ids as a file named "
            ".npy, or export again with --tokenizer."
        )
    chunks = tokens_of_text(decoded(stream, name), tokenizer, vocab_size)
    return TokenFile(name=name, chunks=chunks, size=_size_of(stream), is_text=True)


def _size_of(stream: BinaryIO) -> int | None:
    try:
        size = os.fstat(stream.fileno()).st_size
    except (OSError, io.UnsupportedOperation):
        return None
    return size or None


@contextlib.contextmanager
def open_tokens(
    source: str | Path | BinaryIO, tokenizer: Tokenizer | None, vocab_size: int
) -> Iterator[TokenFile]:
    """Open a file of UTF-8 text, or of token ids as numpy.save writes them, or a stream of text.

    Args:
        source: A path, or a stream of bytes.
        tokenizer: For text; None where there is none.
        vocab_size: Ids must be below it.

    Raises:
        InputError: if it cannot be read, and while it is read if it holds what it should not.
    """
    if not isinstance(source, str | Path):
        yield _text_file(source, "stdin", tokenizer, vocab_size)
        return
    path = Path(source)
    try:
        stream = io.BufferedReader(io.FileIO(path), 2 * PIECE)
    except OSError as exc:
        raise InputError(
            f"{path} could not be read: {exc.strerror}; give a file of UTF-8 text, or of token ids as .npy."
        ) from exc
    with stream:
        if not stream.peek(len(NUMPY_MAGIC)).startswith(NUMPY_MAGIC):
            yield _text_file(stream, str(path), tokenizer, vocab_size)
            return
        ids = ids_in(path)
        chunks = tokens_of_ids(ids, vocab_size, str(path))
        yield TokenFile(name=str(path), chunks=chunks, size=ids.size, is_text=False)
