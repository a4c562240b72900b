"""What generation_config.json says, in the ways that other programs write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.errors import BundleError
from gpt_onnx.runtime.generation_config import GenerationDefaults, read_generation_defaults
from gpt_onnx.runtime.sampling import Sampling

CASES: dict[str, tuple[dict[str, Any], GenerationDefaults]] = {
    "nothing": ({}, GenerationDefaults(sampling=Sampling(temperature=0.8, top_k=50))),
    "gpt2": (
        {"bos_token_id": 50256, "eos_token_id": 50256, "transformers_version": "4.26.0"},
        GenerationDefaults(bos_id=50256, eos_ids=(50256,)),
    ),
    "end-of-text is id 0": ({"eos_token_id": 0}, GenerationDefaults(eos_ids=(0,))),
    "several ends": ({"eos_token_id": [3, 5]}, GenerationDefaults(eos_ids=(3, 5))),
    "greedy": (
        {"do_sample": False, "temperature": 0.7},
        GenerationDefaults(sampling=Sampling(temperature=0)),
    ),
    "nulls": ({"top_k": None, "min_p": None, "eos_token_id": None}, GenerationDefaults()),
    "all": (
        {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1},
        GenerationDefaults(
            sampling=Sampling(temperature=0.6, top_k=20, top_p=0.95, min_p=0.01, repetition_penalty=1.1)
        ),
    ),
}
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "text as id": ({"eos_token_id": "</s>"}, "has the token id '</s>'"),
    "id above the vocabulary": ({"eos_token_id": [1, 100]}, "token id 100; ids are integers from 0 to 99"),
    "negative id": ({"bos_token_id": -1}, "token id -1"),
    "too many": ({"eos_token_id": [1] * 2000}, "2000 values of eos_token_id"),
    "hot": ({"temperature": -1}, "generation_config.json: temperature is -1"),
    "text as number": ({"top_k": "50"}, "top_k is '50'"),
}


def write(folder: Path, values: dict[str, Any]) -> Path:
    path = folder / "generation_config.json"
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("name", CASES)
def test_values_are_read_as_other_programs_write_them(tmp_path: Path, name: str) -> None:
    values, expected = CASES[name]
    assert read_generation_defaults(write(tmp_path, values)) == expected


@pytest.mark.parametrize("name", FAULTS)
def test_values_that_cannot_be_used_are_named(tmp_path: Path, name: str) -> None:
    values, message = FAULTS[name]
    with pytest.raises(BundleError, match=message):
        read_generation_defaults(write(tmp_path, values), vocab_size=100)


def test_a_bundle_without_the_file_has_the_house_defaults(tmp_path: Path) -> None:
    assert read_generation_defaults(tmp_path / "generation_config.json") == GenerationDefaults()


def test_a_file_that_is_no_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text("[1]")
    with pytest.raises(BundleError, match="holds a list"):
        read_generation_defaults(path)
