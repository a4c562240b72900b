"""generation_config.json: the sampling defaults, and the tokens that begin, end and pad a text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpt_onnx.hf_words import SAMPLING_WORDS

SAMPLING = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0}
TRANSFORMERS_SAMPLING = SAMPLING | {"temperature": 1.0}
"""What transformers takes for a word that a generation_config.json lacks."""


def ends_of(special: Mapping[str, Any]) -> list[int]:
    """Return the ids that end a text, which are one or a list."""
    ends = special.get("eos_token_id", [])
    return ends if isinstance(ends, list) else [ends]


def sampling_of(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return how to sample: as the checkpoint says, its gaps filled as transformers fills them.

    A checkpoint that says nothing of it is sampled as every other is. One that gives a temperature or a cut
    without do_sample wants to be sampled.
    """
    said = {word: generation[word] for word in SAMPLING_WORDS if word in generation}
    if not said.keys() - {"repetition_penalty"}:
        return SAMPLING | said
    return TRANSFORMERS_SAMPLING | said


def generation_config_json(
    special: Mapping[str, Any], generation: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the content of generation_config.json.

    Args:
        special: The ids of the tokens that begin, end and pad a text, by role.
        generation: What the model says of sampling.
    """
    ends = ends_of(special)
    padding = {"pad_token_id": ends[0]} if ends else {}
    return {**padding, **special, **sampling_of(generation)}
