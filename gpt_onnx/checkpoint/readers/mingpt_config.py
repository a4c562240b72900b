"""The ``config.json`` that minGPT's ``setup_logging`` writes beside ``model.pt``: heads and activation.

It is written before the model is made: sizes may be null beside a model_type that stands for them. Tensors
have the last word; a file whose sizes are not theirs belongs to another run and is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_onnx.config import read_json_object
from gpt_onnx.errors import ConfigError

FILE = "config.json"
SECTIONS = ("system", "data", "model", "trainer")
SIZES = ("n_layer", "n_head", "n_embd")
MODEL_TYPES: Mapping[str, tuple[int, int, int]] = {
    "openai-gpt": (12, 12, 768),
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
    "gopher-44m": (8, 16, 512),
    "gpt-mini": (6, 6, 192),
    "gpt-micro": (4, 4, 128),
    "gpt-nano": (3, 3, 48),
}
"""Layers, heads and width that minGPT's code gives each."""
ACTIVATION = "gelu_tanh"
"""Of every minGPT that writes this file: its NewGELU."""


def _sizes(path: Path) -> dict[str, Any]:
    """Return the sizes that a file says; none where it is no file of minGPT's."""
    try:
        values = read_json_object(path)
    except ConfigError:
        return {}
    model = values.get("model")
    if not all(name in values for name in SECTIONS) or not isinstance(model, dict):
        return {}
    kind = model.get("model_type")
    known = MODEL_TYPES.get(kind) if isinstance(kind, str) else None
    return dict(zip(SIZES, known, strict=True)) if known else {name: model.get(name) for name in SIZES}


def told_beside(path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a config.json beside a model.pt answers; nothing if it is not its own.

    Args:
        path: The model.pt.
        facts: Fields that its tensors tell.
    """
    file = path.parent / FILE
    sizes = _sizes(file) if file.is_file() else {}
    heads = sizes.get("n_head")
    fits = all(sizes.get(name) == facts.get(name) for name in ("n_layer", "n_embd"))
    if type(heads) is not int or heads < 1 or not fits:
        return {}
    return {"n_head": heads, "activation": ACTIVATION}
