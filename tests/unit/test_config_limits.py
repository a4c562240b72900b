"""Sizes that no model has are refused in a sentence, before anything of that size is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gpt_onnx.config import LARGEST, GPTConfig, named_config, named_configs, read_json_object
from gpt_onnx.errors import ConfigError
from gpt_onnx.model import GPT

SIZES = {"vocab_size": 23, "context_length": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("value", [0, -1, 10**12, 10**400, True, 2.0, "8"])
def test_a_size_out_of_range_is_named_with_the_range(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is .*from 1 to {LARGEST[name]}\.$") as caught:
        GPTConfig(**(SIZES | {name: value}))
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize("name", ["embedding_scale", "norm_eps", "dropout"])
@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("nan"), "much", None])
def test_a_number_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        GPTConfig(**(SIZES | {name: value}))


def test_a_number_of_a_thousand_digits_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SIZES | {"n_layer": 10**1000}), encoding="utf-8")
    with pytest.raises(ConfigError, match="n_layer"):
        GPTConfig.from_dict(read_json_object(path))


def test_the_largest_allowed_sizes_can_be_described() -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig.from_dict({**LARGEST, "n_layer": 1, "position": "learned"}))
    assert model.wte.weight.shape == (LARGEST["vocab_size"], LARGEST["n_embd"])


def test_every_named_configuration_is_far_below_the_limits() -> None:
    for config in map(named_config, named_configs()):
        assert all(8 * getattr(config, name) < LARGEST[name] for name in LARGEST)
