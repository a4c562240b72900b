"""nanoGPT's meta.pkl: every character there and back, what is unknown an error, and nothing run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.checkpoint.tokenizer_files import read_tokenizer
from gpt_onnx.errors import CheckpointError, InputError
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer
from tests.nano_models import NanoGPT

CHARACTERS = "\n !$&',-.3:;?ABCXYZabcxyz\t\r\u00a0é\u0301ß中🙂\u200d|<>\\\"\u2028\x00"


def meta_of(characters: str) -> dict[str, Any]:
    """What data/shakespeare_char/prepare.py dumps."""
    chars = sorted(set(characters))
    return {
        "vocab_size": len(chars),
        "itos": dict(enumerate(chars)),
        "stoi": {ch: i for i, ch in enumerate(chars)},
    }


def written(path: Path, value: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


def loaded(folder: Path, protocol: int = 4) -> Tokenizer:
    files = read_tokenizer(written(folder / "meta.pkl", meta_of(CHARACTERS), protocol), 256)
    assert files is not None
    (folder / "tokenizer.json").write_text(files.definition, encoding="utf-8")
    return load_tokenizer(folder / "tokenizer.json")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_character_goes_there_and_back(tmp_path: Path, protocol: int) -> None:
    tokenizer, stoi = loaded(tmp_path, protocol), meta_of(CHARACTERS)["stoi"]
    for character in CHARACTERS:
        assert tokenizer.encode(character) == [stoi[character]]
        assert tokenizer.decode([stoi[character]]) == character
    text = CHARACTERS + CHARACTERS[::-1] + "  AB\n\n\r\nCa  "
    assert tokenizer.encode(text) == [stoi[character] for character in text]
    assert tokenizer.decode([stoi[character] for character in text]) == text


def test_an_unknown_character_is_an_error(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path)
    with pytest.raises(InputError, match="could not encode the text"):
        tokenizer.encode("ABQ")


def test_transformers_reads_the_same(tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    loaded(tmp_path)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), clean_up_tokenization_spaces=False
    )
    text = "ABC , abc .\n"
    assert theirs.decode(theirs.encode(text)) == text


def test_a_checkpoint_takes_it(tmp_path: Path) -> None:
    meta = written(tmp_path / "meta.pkl", meta_of(CHARACTERS))
    model = NanoGPT(vocab_size=len(set(CHARACTERS)), block_size=16, n_layer=1, n_head=2, n_embd=8)
    torch.save({"model": model.state_dict(), "model_args": model.model_args}, tmp_path / "ckpt.pt")
    checkpoint = read_checkpoint(tmp_path / "ckpt.pt", tokenizer=meta)
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.vocab_size == len(set(CHARACTERS))
    assert checkpoint.tokenizer.config["model_max_length"] == 16
    assert not any("no tokenizer" in note for note in checkpoint.notes)


class Touch:
    """Would run code, if Python's own unpickler read it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_a_pickle_that_would_run_code_is_refused_and_does_not(tmp_path: Path) -> None:
    path = written(
        tmp_path / "meta.pkl", {"stoi": {"a": 0}, "itos": {0: "a"}, "more": Touch(tmp_path / "ran")}
    )
    with pytest.raises(CheckpointError, match=r"meta\.pkl names .*plain values alone"):
        read_tokenizer(path, 16)
    assert not (tmp_path / "ran").exists()


BAD: dict[str, tuple[Any, str]] = {
    "a list": ([1], "holds a list"),
    "no tables": ({"vocab_size": 3}, "lacks stoi and itos"),
    "words": ({"stoi": {"ab": 0}, "itos": {0: "ab"}}, "'ab'; each must be one character"),
    "two directions": (
        {"stoi": {"a": 0, "b": 1}, "itos": {0: "b", 1: "a"}},
        "'a' the id 0, and itos another",
    ),
    "a hole": ({"stoi": {"a": 0, "b": 2}, "itos": {0: "a", 2: "b"}}, "not 0 to 1"),
    "a number for text": ({"stoi": {"a": "0"}, "itos": {"0": "a"}}, "the id 0, and itos another"),
}


@pytest.mark.parametrize("case", BAD)
def test_another_table_is_refused_by_name(tmp_path: Path, case: str) -> None:
    value, message = BAD[case]
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer(written(tmp_path / "meta.pkl", value), 16)


def test_a_damaged_pickle_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "meta.pkl", meta_of("abc"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"meta\.pkl .* takes the meta\.pkl that nanoGPT wrote"):
        read_tokenizer(path, 16)
