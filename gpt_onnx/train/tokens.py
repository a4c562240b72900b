"""From documents to token ids on the disk: the byte-level BPE, and files of ids that are mapped, not loaded.

The ids of all documents stand in one row, with END_OF_TEXT before, between and behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers
from torch import Tensor

from gpt_onnx.checkpoint.byte_level import byte_level_bpe
from gpt_onnx.checkpoint.files import replace_file, write_chunks
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


def write_tokens(path: Path, documents: Sequence[str], tokenizer: Tokenizer) -> None:
    """Encode documents into a file of ids; the text of END_OF_TEXT within a document is ordinary text."""
    dtype = token_dtype(tokenizer.get_vocab_size())
    separator = np.array([tokenizer.token_to_id(END_OF_TEXT)], dtype).tobytes()

    def chunks() -> Iterator[bytes]:
        yield separator
        for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
            for encoding in tokenizer.encode_batch(documents[start : start + DOCUMENTS_AT_ONCE]):
                yield np.array(encoding.ids, dtype).tobytes() + separator

    plain = tokenizer.encode_special_tokens
    tokenizer.encode_special_tokens = True  # "encode them as text", in spite of its name
    try:
        replace_file(path, lambda file: write_chunks(file, chunks()))
    finally:
        tokenizer.encode_special_tokens = plain


def map_tokens(path: Path, vocab_size: int) -> TokenIds:
    """Map a file of ids into memory without reading it."""
    return np.memmap(path, token_dtype(vocab_size), mode="r")


def random_windows(ids: TokenIds, batch_size: int, length: int, generator: torch.Generator) -> Tensor:
    """Draw windows of consecutive ids, (batch_size, length) int64, each start equally likely."""
    starts = torch.randint(len(ids) - length + 1, (batch_size,), generator=generator).tolist()
    return torch.from_numpy(np.stack([ids[start : start + length] for start in starts]).astype(np.int64))
