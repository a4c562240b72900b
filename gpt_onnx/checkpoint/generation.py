"""What a checkpoint says about generation: the tokens that end a text, and how to sample.

``generation_config.json`` says it, and config.json where that is silent. The words are those of
generation_config.json; only those that a bundle can keep are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpt_onnx.config import read_json_object
from gpt_onnx.errors import CheckpointError
from gpt_onnx.hf_words import ROLES, SAMPLING_WORDS

GENERATION_FILE = "generation_config.json"
MAX_ENDS = 1024


def _is_number(value: object, low: float, high: float = math.inf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


RANGES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "do_sample": ("true or false", lambda value: type(value) is bool),
    "temperature": ("a number of at least 0", lambda value: _is_number(value, 0, 1e4)),
    "top_k": ("a whole number of at least 0", lambda value: type(value) is int and 0 <= value < 2**31),
    "top_p": ("a number above 0 and at most 1", lambda value: _is_number(value, 0, 1) and value > 0),
    "min_p": ("a number from 0 to 1", lambda value: _is_number(value, 0, 1)),
    "repetition_penalty": ("a number above 0", lambda value: _is_number(value, 1e-4, 1e4)),
}
"""What each word may say, in words and as a check."""


def _ids(value: object) -> list[int]:
    """Return the ids of a role, which is one or a list; what is none is left out."""
    listed = value if isinstance(value, list) else [value]
    return [number for number in listed[:MAX_ENDS] if type(number) is int]


def _special(sources: tuple[Mapping[str, Any], ...], vocab_size: int) -> tuple[dict[str, Any], list[str]]:
    """Return each role's ids by the first source that names it, and those that the vocabulary lacks."""
    found: dict[str, Any] = {}
    notes: list[str] = []
    for role in ROLES:
        named = next((source[role] for source in sources if source.get(role) is not None), None)
        ids = _ids(named)
        inside = [number for number in ids if 0 <= number < vocab_size]
        if inside:
            found[role] = inside if role == "eos_token_id" and len(inside) > 1 else inside[0]
        if beyond := [number for number in ids if number >= vocab_size]:
            notes.append(
                f"The checkpoint says {role} = {beyond[0]}, and its vocabulary has {vocab_size} rows; "
                "this was left out."
            )
    return found, notes


def _sampling(values: Mapping[str, Any], origin: Path) -> dict[str, Any]:
    """Return the words of sampling, each checked.

    Raises:
        CheckpointError: naming the word and what it may say.
    """
    given = {word: values[word] for word in SAMPLING_WORDS if values.get(word) is not None}
    for word, value in given.items():
        meaning, fits = RANGES[word]
        if not fits(value):
            raise CheckpointError(f"{origin} has {word} = {str(value)[:40]}; it must be {meaning}.")
    return given


def read_generation(
    folder: Path, values: Mapping[str, Any], vocab_size: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read what a folder says about generation.

    Args:
        folder: Where generation_config.json may be.
        values: Its config.json.
        vocab_size: Rows of the embedding; ids beyond are left out.

    Returns:
        The words of generation_config.json, and sentences that the user should read.

    Raises:
        ConfigError: if the file is no JSON object.
        CheckpointError: if a word of sampling is out of its range.
    """
    path = folder / GENERATION_FILE
    own = read_json_object(path) if path.is_file() else {}
    special, notes = _special((own, values), vocab_size)
    return special | _sampling(own, path), tuple(notes)
