"""From documents to token ids on the disk: the byte-level BPE, and files of ids that are mapped, not loaded.

The ids of all documents stand in one row, with the end token before, between and behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Encoding, Tokenizer, pre_tokenizers, trainers
from torch import Tensor

from gpt_onnx._whole_files import replace_file
from gpt_onnx.checkpoint.byte_level import byte_level_bpe
from gpt_onnx.checkpoint.files import write_chunks
from gpt_onnx.checkpoint.tokenizer_files import END_OF_TEXT
from gpt_onnx.errors import InputError

DOCUMENTS_AT_ONCE = 64
TokenIds = NDArray[np.integer]


def train_tokenizer(documents: Sequence[str], vocab_size: int) -> Tokenizer:
    """Train a byte-level BPE with END_OF_TEXT as id 0; a small corpus may give fewer ids than asked for.

    Raises:
        InputError: if the vocabulary cannot hold every byte and END_OF_TEXT.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < len(alphabet) + 1:
        raise InputError(f"vocab_size is {vocab_size}; byte-level BPE needs at least {len(alphabet) + 1}.")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(END_OF_TEXT, special=True, normalized=False)],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer = byte_level_bpe()
    tokenizer.train_from_iterator(documents, trainer, length=len(documents))
    return tokenizer


def token_dtype(vocab_size: int) -> np.dtype[np.integer]:
    """Return the smallest of uint16 and uint32 that holds every id."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<u4")


def _without_end(encoding: Encoding, end: int) -> list[int]:
    """Return a document's ids without an end token that the tokenizer puts around every text."""
    if end not in (encoding.ids[:1] + encoding.ids[-1:]):
        return encoding.ids
    pairs = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    return [number for number, added in pairs if not (added and number == end)]


def write_tokens(
    path: Path, documents: Sequence[str], tokenizer: Tokenizer, *, end: int, vocab_size: int
) -> None:
    """Encode documents into a file of ids; the text of a special token within a document is ordinary text.

    Args:
        path: The file.
        documents: Texts, of which none is cut or filled up, whatever the tokenizer is set to.
        tokenizer: A copy is used.
        end: The id that stands before, between and behind the documents.
        vocab_size: The model's, by which ``map_tokens`` reads the file.
    """
    dtype = token_dtype(vocab_size)
    separator = np.array([end], dtype).tobytes()
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = True  # "encode them as text", in spite of its name

    def chunks() -> Iterator[bytes]:
        yield separator
        for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
            for encoding in plain.encode_batch(documents[start : start + DOCUMENTS_AT_ONCE]):
                yield np.array(_without_end(encoding, end), dtype).tobytes() + separator

    replace_file(path, lambda file: write_chunks(file, chunks()))


def map_tokens(path: Path, vocab_size: int) -> TokenIds:
    """Map a file of ids into memory without reading it."""
    return np.memmap(path, token_dtype(vocab_size), mode="r")


def random_windows(ids: TokenIds, batch_size: int, length: int, generator: torch.Generator) -> Tensor:
    """Draw windows of consecutive ids, (batch_size, length) int64, each start equally likely."""
    starts = torch.randint(len(ids) - length + 1, (batch_size,), generator=generator).tolist()
    return torch.from_numpy(np.stack([ids[start : start + length] for start in starts]).astype(np.int64))
