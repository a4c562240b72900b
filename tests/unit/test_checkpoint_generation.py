"""What a Hugging Face folder says about generation, and which of it reaches a bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.checkpoint.generation import read_generation
from gpt_onnx.errors import CheckpointError, ConfigError


def read(folder: Path, own: Any, config: dict[str, Any] | None = None) -> dict[str, Any]:
    if own is not None:
        (folder / "generation_config.json").write_text(json.dumps(own))
    return read_generation(folder, config or {}, 100)[0]


def test_words_of_both_files(tmp_path: Path) -> None:
    own = {"eos_token_id": [7, 9], "temperature": 0.6, "top_k": 20, "do_sample": True, "max_length": 50}
    found = read(tmp_path, own, {"eos_token_id": 3, "bos_token_id": 1, "temperature": 9})
    assert found == {
        "bos_token_id": 1,
        "eos_token_id": [7, 9],
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 20,
    }


def test_config_json_alone_tells_the_tokens(tmp_path: Path) -> None:
    assert read(tmp_path, None, {"eos_token_id": [2], "pad_token_id": None}) == {"eos_token_id": 2}
    assert read(tmp_path, None) == {}


def test_tokens_beyond_the_vocabulary_are_left_out_and_told(tmp_path: Path) -> None:
    found, notes = read_generation(tmp_path, {"eos_token_id": [100, 5], "bos_token_id": 50256}, 100)
    assert found == {"eos_token_id": 5}
    assert "bos_token_id = 50256, and its vocabulary has 100 rows" in notes[0]
    assert "eos_token_id = 100" in notes[1]


@pytest.mark.parametrize("value", [-1, "2", True, 2.0, None, []])
def test_what_is_no_id_is_left_out(tmp_path: Path, value: Any) -> None:
    assert read_generation(tmp_path, {"pad_token_id": value}, 100) == ({}, ())


@pytest.mark.parametrize(
    ("word", "value", "message"),
    [
        ("temperature", -1, "temperature = -1; it must be a number of at least 0"),
        ("temperature", "hot", "temperature = hot"),
        ("top_p", 1.5, "top_p = 1.5; it must be a number above 0 and at most 1"),
        ("top_k", 2.5, "top_k = 2.5; it must be a whole number"),
        ("do_sample", 1, "do_sample = 1; it must be true or false"),
        ("repetition_penalty", 0, "repetition_penalty = 0"),
        ("min_p", True, "min_p = True"),
    ],
)
def test_words_out_of_range_are_refused(tmp_path: Path, word: str, value: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, {word: value})


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"generation_config\.json"):
        read(tmp_path, [])
