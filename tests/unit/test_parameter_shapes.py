"""What a configuration says of its parameters is what PyTorch makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_onnx.config import GPTConfig, named_config, named_configs
from gpt_onnx.model import skeleton
from gpt_onnx.parameter_shapes import parameter_shapes

SIZES: dict[str, Any] = {"vocab_size": 11, "context_length": 8, "n_embd": 12, "n_layer": 2, "n_head": 3}
KINDS: list[dict[str, Any]] = [
    {},
    {"position": "learned"},
    {"position": "rotary", "norm": "rmsnorm", "activation": "swiglu", "bias": False},
    {"n_head": 6, "n_kv_head": 2, "head_size": 10, "qkv_bias": True},
    {"d_ff": 7, "activation": "geglu", "norm_bias": False},
    {"tie_embeddings": False, "head_bias": True},
    {"tie_embeddings": True, "head_bias": True, "final_norm": False},
    {"bias": False, "proj_bias": True},
    {"bias": True, "mlp_bias": False, "norm_order": "post"},
]


def shapes_in_pytorch(config: GPTConfig) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(tensor.shape)) for name, tensor in skeleton(config).state_dict().items()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_shapes_are_those_of_the_model(kind: dict[str, Any]) -> None:
    config = GPTConfig(**(SIZES | kind))
    assert list(parameter_shapes(config).items()) == shapes_in_pytorch(config)


@pytest.mark.parametrize("name", named_configs())
def test_shapes_of_named_models_are_those_of_the_model(name: str) -> None:
    config = named_config(name)
    assert list(parameter_shapes(config).items()) == shapes_in_pytorch(config)
