"""The named configurations: their parameters, counted without allocating any."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

import gpt_onnx
from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.config import GPTConfig, named_config, named_configs
from gpt_onnx.errors import ConfigError
from gpt_onnx.model import GPT, skeleton
from gpt_onnx.train.evaluate import bits_per_byte, mean_loss

FOLDER = Path(gpt_onnx.__file__).resolve().parent.parent / "models"

PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}


def parameters(config: GPTConfig) -> int:
    with torch.device("meta"):
        return GPT(config).parameter_count()


def by_hand(config: GPTConfig) -> int:
    """Count from the sizes: embedding, positions, blocks of attention, feed-forward and norms, last norm."""
    d, inner, packed = config.n_embd, config.d_ff, config.qkv_size
    attention = d * packed + (packed if config.qkv_bias else 0) + d * d + (d if config.bias else 0)
    feed_forward = d * inner + inner * d + (inner + d if config.bias else 0)
    if config.activation == "swiglu":
        feed_forward += d * inner
    norm = d if config.norm == "rmsnorm" else 2 * d
    table = config.context_length * d if config.position == "learned" else 0
    block = attention + feed_forward + 2 * norm
    return config.vocab_size * d + table + config.n_layer * block + norm


@pytest.mark.parametrize("name", PARAMETERS)
def test_gpt2_has_the_published_number_of_parameters(name: str) -> None:
    assert parameters(named_config(name)) == PARAMETERS[name]


def test_gpt3_has_174_6_billion_parameters() -> None:
    config = named_config("gpt3")
    assert (config.n_layer, config.n_embd, config.n_head, config.context_length) == (96, 12288, 96, 2048)
    assert round(parameters(config) / 1e9, 1) == 174.6


@pytest.mark.parametrize("name", named_configs())
def test_every_count_follows_from_the_sizes(name: str) -> None:
    config = named_config(name)
    assert parameters(config) == by_hand(config)


def test_every_configuration_has_a_twin_with_the_other_positions() -> None:
    twins = {"sotu": "sotu-learned", **{name: f"{name}-sinusoidal" for name in (*PARAMETERS, "gpt3")}}
    assert sorted([*twins, *twins.values(), "sotu-rotary"]) == named_configs()
    for name, twin in twins.items():
        one, other = named_config(name), named_config(twin)
        assert {one.position, other.position} == {"sinusoidal", "learned"}
        learned, formula = sorted((one, other), key=lambda config: config.position)
        assert parameters(learned) - parameters(formula) == one.context_length * one.n_embd


def test_the_rotary_configuration_has_the_size_of_the_shipped_one_and_llamas_parts() -> None:
    config = named_config("sotu-rotary")
    assert parameters(config) == 5_475_584
    names = set(skeleton(config).state_dict())
    assert "h.5.mlp.c_gate.weight" in names
    assert not any(name.endswith("bias") or name.startswith("wpe") for name in names)


@pytest.mark.parametrize("name", named_configs())
def test_a_file_holds_known_keys_under_their_own_names(name: str) -> None:
    values = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    assert set(values) <= set(named_config(name).to_dict())


def test_the_shipped_model_is_small_and_sinusoidal() -> None:
    config = named_config("sotu")
    assert (config.position, config.vocab_size, config.context_length) == ("sinusoidal", 4096, 512)
    assert 5_000_000 <= parameters(config) <= 7_500_000


def test_the_shipped_checkpoint_is_stored_in_half_precision_within_16_mb() -> None:
    assert sum(entry.stat().st_size for entry in (FOLDER / "sotu").iterdir()) <= 16_000_000
    checkpoint = read_checkpoint(FOLDER / "sotu")
    assert {info.dtype for info in checkpoint.tensors.values()} == {"F16"}
    assert checkpoint.config == named_config("sotu").replace(dropout=checkpoint.config.dropout)


def test_the_validation_excerpt_is_about_200_kb_of_whole_addresses() -> None:
    text = (FOLDER / "sotu" / "validation.txt").read_text(encoding="utf-8")
    assert 190_000 <= len(text.encode()) <= 200_000
    assert len(text.split("\n\n")) == 5


def test_the_shipped_model_predicts_text_that_it_was_not_trained_on() -> None:
    """A sixth of the excerpt; the card gives the figure for all validation texts."""
    checkpoint = read_checkpoint(FOLDER / "sotu")
    assert checkpoint.tokenizer is not None
    text = (FOLDER / "sotu" / "validation.txt").read_text(encoding="utf-8")[:32_000]
    ids = [0, *Tokenizer.from_str(checkpoint.tokenizer.definition).encode(text).ids]
    nats = mean_loss(load_model(checkpoint), np.array(ids))
    assert bits_per_byte(nats, len(ids) - 1, len(text.encode())) < 1.75


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no configuration named 'gpt5'; known are gpt2, gpt2-large"):
        named_config("gpt5")
    with pytest.raises(ConfigError, match="no configuration named"):
        named_config("../pyproject")
