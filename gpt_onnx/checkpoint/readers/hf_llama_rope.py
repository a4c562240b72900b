"""Rotary positions as config.json describes them: before version 5 of transformers, and since.

before   "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, ...}
since    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_onnx.checkpoint.readers.hf_folder_family import Values, shown
from gpt_onnx.errors import ConfigError
from gpt_onnx.rope import UNSCALED, RopeScaling

ACCEPTED = ("linear", "llama3")
LACKING: Mapping[str, str] = {
    "dynamic": "its angles change with the length of the text, those of tokens in the cache too",
    "yarn": "it scales frequencies and attention in a way of its own",
    "longrope": "it has factors for each frequency, which change with the length of the text",
    "su": "it has factors for each frequency, which change with the length of the text",
    "proportional": "it turns a part of the pairs alone",
    "mrope": "it turns by places in an image too",
}
"""Kinds of scaling that are known and cannot be computed, and why."""


def _parameters(values: Values) -> dict[str, Any]:
    """Return the one table of rotary parameters.

    Raises:
        ConfigError: if there are two that differ, or it is no table.
    """
    old, new = values["rope_scaling"] or None, values["rope_parameters"] or None
    if old is not None and new is not None and old != new:
        raise ConfigError("it has both rope_scaling and rope_parameters, and they differ; remove one")
    found = old if old is not None else new
    if not isinstance(found, Mapping | None):
        raise ConfigError(f"its rotary parameters are {shown(found)}; they must be a table or absent")
    if nested := [key for key, value in (found or {}).items() if isinstance(value, Mapping)]:
        raise ConfigError(
            f"its rotary parameters have a table {shown(nested[0])} for layers of a kind; one is known"
        )
    return dict(found or {})


def _kind(parameters: dict[str, Any]) -> str:
    """Take the kind of scaling out of the parameters.

    Raises:
        ConfigError: if it is one that cannot be computed.
    """
    old = parameters.pop("type", UNSCALED)
    kind = parameters.pop("rope_type", old)
    if kind == UNSCALED or kind in ACCEPTED:
        return str(kind)
    reason = LACKING.get(kind, "it is unknown") if isinstance(kind, str) else "it is no word"
    raise ConfigError(
        f"its rotary positions are scaled in the way {shown(kind)}: {reason}; known are {UNSCALED}, "
        f"{' and '.join(ACCEPTED)}"
    )


def _scaling(kind: str, parameters: dict[str, Any], values: Values) -> RopeScaling | None:
    if kind == UNSCALED:
        return None
    if kind == "llama3":
        length = values["original_max_position_embeddings"] or parameters.get(
            "original_max_position_embeddings", values["max_position_embeddings"]
        )
        parameters = parameters | {"original_max_position_embeddings": length}
    return RopeScaling.from_dict(parameters | {"kind": kind}, origin="its table of rotary parameters")


def rope_fields(values: Values) -> dict[str, Any]:
    """Return GPTConfig's fields of rotary positions.

    Raises:
        ConfigError: naming what cannot be computed.
    """
    parameters = _parameters(values)
    kind = _kind(parameters)
    theta = parameters.pop("rope_theta", values["rope_theta"])
    partial = parameters.pop("partial_rotary_factor", values["partial_rotary_factor"])
    if partial not in (None, 1):
        raise ConfigError(
            f"it has partial_rotary_factor = {shown(partial)}: rotary positions on a part of each head, "
            "which are not read for this family"
        )
    return {"rope_theta": theta, "rope_scaling": _scaling(kind, parameters, values)}
