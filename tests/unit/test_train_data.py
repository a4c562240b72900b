"""Texts to ids: what is read, how it is split, and that nothing is lost on the way."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from gpt_onnx.errors import InputError
from gpt_onnx.train.corpus import Corpus, hold_out, read_corpus
from gpt_onnx.train.tokens import map_tokens, random_windows, token_dtype, train_tokenizer, write_tokens

TEXTS = ("fellow citizens of the Senate", "the state of the Union", "naïve “quotes” 😀\n\n")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS * 3, 300)


def test_folders_give_their_text_files_in_order_and_skip_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, text in {"b/c.txt": "3", "a.txt": "1", "z.txt": "4", "empty.txt": "", "note.md": "5"}.items():
        (tmp_path / name).write_text(text)
    assert read_corpus([tmp_path]).documents == ("1", "3", "4")
    assert read_corpus([tmp_path / "note.md", tmp_path / "a.txt"]).documents == ("5", "1")


def test_line_endings_and_bytes_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\r\nb\xef\xbb\xbf")
    corpus = read_corpus([tmp_path])
    assert corpus.documents == ("a\r\nb\ufeff",)
    assert corpus.byte_count == 7


@pytest.mark.parametrize(
    ("content", "match"), [(b"ok\xff", r"a\.txt is not UTF-8 text \(byte 2\)"), (b"", "holds no text")]
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(InputError, match=match):
        read_corpus([tmp_path])


def test_a_missing_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_corpus([tmp_path / "nowhere"])


@settings(deadline=None)
@given(count=st.integers(2, 40), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 2**32))
def test_held_out_documents_and_the_rest_make_up_the_whole(count: int, fraction: float, seed: int) -> None:
    documents = tuple(str(number) for number in range(count))
    training, validation = hold_out(Corpus(documents=documents), fraction, seed)
    assert sorted(training.documents + validation.documents) == sorted(documents)
    assert len(validation.documents) == min(count - 1, max(1, round(fraction * count)))
    assert hold_out(Corpus(documents=documents), fraction, seed) == (training, validation)


def test_one_document_cannot_be_split() -> None:
    with pytest.raises(InputError, match="one document"):
        hold_out(Corpus(documents=("alone",)), 0.5, 0)


def test_end_of_text_is_id_0_and_the_vocabulary_is_as_large_as_asked(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_to_id("<|endoftext|>") == 0
    assert tokenizer.get_vocab_size() <= 300


@settings(deadline=None)
@given(text=st.text(max_size=200))
def test_any_text_decodes_back_to_itself(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text.replace("<|endoftext|>", "")).ids
    assert tokenizer.decode(ids) == text.replace("<|endoftext|>", "")


def test_a_vocabulary_too_small_for_all_bytes_is_refused() -> None:
    with pytest.raises(InputError, match="vocab_size is 256; byte-level BPE needs at least 257"):
        train_tokenizer(TEXTS, 256)


def test_training_the_tokenizer_is_deterministic(tokenizer: Tokenizer) -> None:
    assert train_tokenizer(TEXTS * 3, 300).to_str() == tokenizer.to_str()


def test_ids_have_end_of_text_before_between_and_behind_documents(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    write_tokens(tmp_path / "ids", TEXTS, tokenizer, end=0, vocab_size=300)
    ids = map_tokens(tmp_path / "ids", 300)
    assert ids.dtype == np.uint16
    (separators,) = np.nonzero(ids == 0)
    assert separators[0] == 0
    assert separators[-1] == len(ids) - 1
    parts = [ids[begin + 1 : end].tolist() for begin, end in itertools.pairwise(separators)]
    assert tuple(tokenizer.decode(part) for part in parts) == TEXTS


def test_end_of_text_within_a_document_stays_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_tokens(tmp_path / "ids", ["a<|endoftext|>b"], tokenizer, end=0, vocab_size=300)
    ids = map_tokens(tmp_path / "ids", 300).tolist()
    assert ids.count(0) == 2
    assert tokenizer.decode(ids[1:-1]) == "a<|endoftext|>b"


@pytest.mark.parametrize(("vocab_size", "dtype"), [(257, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_ids_take_the_fewest_bytes_that_hold_them(vocab_size: int, dtype: str) -> None:
    assert token_dtype(vocab_size) == np.dtype(dtype)


def test_windows_are_consecutive_and_reach_both_ends() -> None:
    ids = np.arange(20, dtype=np.uint16)
    windows = random_windows(ids, 500, 17, torch.Generator().manual_seed(0))
    assert windows.dtype == torch.int64
    assert windows.shape == (500, 17)
    assert torch.equal(windows - windows[:, :1], torch.arange(17).expand(500, 17))
    assert set(windows[:, 0].tolist()) == {0, 1, 2, 3}


def test_a_tokenizer_that_cuts_fills_up_and_ends_texts_itself_leaves_documents_whole(tmp_path: Path) -> None:
    rust = train_tokenizer(TEXTS * 3, 300)
    plain = [rust.encode(text).ids for text in TEXTS]
    rust.post_processor = TemplateProcessing(
        single="<|endoftext|> $A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    rust.enable_truncation(4)
    rust.enable_padding(pad_id=7, length=9)
    write_tokens(tmp_path / "ids", TEXTS, rust, end=0, vocab_size=300)
    expected = [0, *itertools.chain.from_iterable([*ids, 0] for ids in plain)]
    assert map_tokens(tmp_path / "ids", 300).tolist() == expected


def test_ids_are_written_as_wide_as_they_are_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_tokens(tmp_path / "ids", TEXTS, tokenizer, end=70_000, vocab_size=70_001)
    ids = map_tokens(tmp_path / "ids", 70_001)
    assert (ids[0], ids[-1]) == (70_000, 70_000)
    assert ids.tolist().count(70_000) == 4
