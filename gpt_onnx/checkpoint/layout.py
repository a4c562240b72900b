"""Our own checkpoint's files, and the weights that a configuration asks for."""

from __future__ import annotations

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import skeleton

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CONVERTED_FROM = "converted_from"
"""In the metadata of the weights: what another program's checkpoint was, from which they were converted."""


def expected_shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every weight that a model of this configuration has."""
    return {name: tuple(tensor.shape) for name, tensor in skeleton(config).state_dict().items()}
