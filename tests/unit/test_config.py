"""The configuration: usual values, synonyms, and what contradicts itself."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.config import SYNONYMS, GPTConfig, read_json_object
from gpt_onnx.errors import ConfigError
from gpt_onnx.rope import RopeScaling

SIZES: dict[str, Any] = {"vocab_size": 100, "context_length": 32, "n_embd": 24, "n_layer": 2, "n_head": 4}


def config(**changes: Any) -> GPTConfig:
    return GPTConfig(**(SIZES | changes))


def test_usual_values_follow_from_the_sizes() -> None:
    made = config()
    assert (made.n_kv_head, made.head_size, made.d_ff) == (4, 6, 96)
    assert (made.group_size, made.qkv_size, made.kv_elements_per_token) == (1, 72, 2 * 2 * 24)
    assert (made.position, made.qkv_bias, made.bias, made.tie_embeddings) == ("sinusoidal", False, True, True)


def test_heads_may_be_shared_and_wider_than_the_stream() -> None:
    made = config(n_head=6, n_kv_head=2, head_size=10)
    assert (made.group_size, made.qkv_size, made.kv_elements_per_token) == (3, 100, 2 * 2 * 2 * 10)


@pytest.mark.parametrize(("scale", "factor"), [(1.0, 1.0), (2, 2.0), ("sqrt", 24**0.5)])
def test_the_embedding_factor(scale: float | str, factor: float) -> None:
    assert config(embedding_scale=scale).embedding_factor == factor


def test_only_learned_positions_have_a_limit() -> None:
    assert config().position_limit is None
    assert config(position="learned").position_limit == 32


def test_a_dictionary_round_trip_through_json_is_exact() -> None:
    made = config(position="learned", embedding_scale="sqrt", norm_eps=3e-6, n_kv_head=2)
    assert GPTConfig.from_dict(json.loads(json.dumps(made.to_dict()))) == made


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        RopeScaling(kind="linear", factor=2.5),
        RopeScaling(
            kind="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_context_length=8192,
        ),
    ],
)
def test_a_dictionary_round_trip_keeps_how_frequencies_are_scaled(scaling: RopeScaling | None) -> None:
    made = config(position="rotary", norm="rmsnorm", activation="swiglu", rope_scaling=scaling, rope_size=4)
    assert GPTConfig.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_biases_follow_the_one_for_all_unless_they_are_named() -> None:
    def biases(made: GPTConfig) -> tuple[bool, ...]:
        return made.proj_bias, made.mlp_bias, made.norm_bias

    assert biases(config()) == (True, True, True)
    assert biases(config(bias=False)) == (False, False, False)
    assert biases(config(bias=False, mlp_bias=True)) == (False, True, False)
    assert biases(config(norm="rmsnorm")) == (True, True, False)


def test_in_a_copy_what_followed_another_field_follows_it_still() -> None:
    made = config(mlp_bias=False).replace(bias=False)
    assert (made.proj_bias, made.mlp_bias, made.norm_bias) == (False, False, False)
    assert config(mlp_bias=False).replace(bias=True).mlp_bias is False
    assert config().replace(norm="rmsnorm").norm_bias is False
    assert config(norm="rmsnorm").replace(norm="layernorm").norm_bias is True
    assert config().replace(head_size=12).rope_size == 12
    assert config(rope_size=4).replace(head_size=12).rope_size == 4


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, 6**-0.5),
        ({"head_size": 16}, 0.25),
        ({"head_size": 16, "attention_scale": "n_embd"}, 24**-0.5),
        ({"attention_scale": 0.3}, 0.3),
        ({"attention_scale_by_layer": True}, 6**-0.5 / 3),
        ({"attention_scale": 1, "attention_scale_by_layer": True}, 1 / 3),
    ],
)
def test_the_scale_of_the_third_layers_scores(changes: dict[str, Any], scale: float) -> None:
    assert config(**changes).score_scale(2) == pytest.approx(scale, rel=1e-15)


@given(data=st.data())
def test_any_choice_of_synonyms_gives_the_same_configuration(data: st.DataObject) -> None:
    made = config(n_kv_head=2, tie_embeddings=False)
    values = {}
    for name, value in made.to_dict().items():
        values[data.draw(st.sampled_from([name, *SYNONYMS.get(name, ())]))] = value
    assert GPTConfig.from_dict(values) == made


def test_every_synonym_of_the_table_names_a_field_and_nothing_twice() -> None:
    fields = {field.name for field in dataclasses.fields(GPTConfig)}
    synonyms = [synonym for names in SYNONYMS.values() for synonym in names]
    assert set(SYNONYMS) <= fields
    assert len(set(synonyms) | fields) == len(synonyms) + len(fields)


def test_a_synonym_beside_its_name_must_agree_with_it() -> None:
    assert GPTConfig.from_dict(SIZES | {"d_model": 24}) == config()
    with pytest.raises(ConfigError, match="n_embd = 24 and d_model = 25; remove one"):
        GPTConfig.from_dict(SIZES | {"d_model": 25})


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"here\.json has the unknown key 'n_head_count'; known are activation"
    ):
        GPTConfig.from_dict(SIZES | {"n_head_count": 4}, origin="here.json")


@pytest.mark.parametrize("name", SIZES)
def test_a_missing_key_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"lacks '{name}'"):
        GPTConfig.from_dict({key: value for key, value in SIZES.items() if key != name})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_layer": 0}, "n_layer is 0; it must be an integer from 1"),
        ({"vocab_size": -5}, "vocab_size is -5"),
        ({"n_embd": 24.0}, "n_embd is 24.0"),
        ({"n_head": True}, "n_head is True"),
        ({"context_length": "32"}, "context_length is '32'"),
        ({"n_layer": 10**9}, "n_layer is 1000000000"),
        ({"n_head": 5}, "n_embd = 24 is not a multiple of n_head = 5; change one, or set head_size"),
        ({"n_kv_head": 3}, "n_head = 4 is not a multiple of n_kv_head = 3"),
        ({"n_embd": 25, "head_size": 8}, "n_embd is 25; sinusoidal positions pair sines with cosines"),
        ({"position": "xpos"}, "position is 'xpos'; known are sinusoidal, learned, rotary, alibi"),
        ({"activation": "relu2"}, "activation is 'relu2'; known are relu, gelu"),
        ({"norm": "batchnorm"}, "norm is 'batchnorm'; known are layernorm, rmsnorm"),
        ({"norm_order": "sandwich"}, "norm_order is 'sandwich'; known are pre, post"),
        ({"sinusoidal_style": "split"}, "sinusoidal_style is 'split'; known are interleaved, concatenated"),
        ({"rope_style": "pairs"}, "rope_style is 'pairs'; known are half, interleaved"),
        ({"norm": "rmsnorm", "norm_bias": True}, "an rmsnorm has no bias"),
        ({"final_norm": 1}, "final_norm is 1; it must be true or false"),
        ({"attention_scale": "d_ff"}, "attention_scale is 'd_ff'; it must be a number"),
        ({"attention_scale": 0.0}, "attention_scale is 0.0"),
        ({"attention_scale_by_layer": "yes"}, "attention_scale_by_layer is 'yes'"),
        ({"rope_theta": 1.0}, "rope_theta is 1.0; it must be a number between 1 and"),
        ({"rope_size": 0}, "rope_size is 0; it must be an integer from 1"),
        ({"position": "rotary", "rope_size": 3}, "rope_size is 3; rotary positions turn pairs"),
        ({"position": "rotary", "rope_size": 8}, "rope_size is 8; .* at most head_size = 6"),
        ({"rope_scaling": {"kind": "linear"}}, "rope_scaling is .*; it must be a table or absent"),
        ({"position": "rotary", "rope_scaling": "linear"}, "rope_scaling is 'linear'; it must be a table"),
        ({"norm": "x" * 5000}, r"norm is 'x{36}\.\.\.; known are"),
        ({"bias": "x" * 5000}, r"bias is 'x{36}\.\.\.; it must be true or false"),
        (
            {"position": "rotary", "rope_size": 2, "rope_scaling": RopeScaling(kind="ntk", factor=2)},
            "rope_size is 2; scaling of the kind ntk needs at least 4",
        ),
        ({"bias": 1}, "bias is 1; it must be true or false"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0"),
        ({"norm_eps": float("nan")}, "norm_eps is nan"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"embedding_scale": 0}, "embedding_scale is 0"),
        ({"embedding_scale": "half"}, "embedding_scale is 'half'"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        config(**changes)
    assert str(caught.value).endswith(".")


def test_an_odd_width_is_allowed_where_positions_are_learned() -> None:
    assert config(n_embd=25, head_size=8, position="learned").n_embd == 25


def test_a_copy_with_changes_is_checked_again() -> None:
    assert config().replace(dropout=0.5).dropout == 0.5
    with pytest.raises(ConfigError, match="dropout is 2"):
        config().replace(dropout=2)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().n_layer = 3  # type: ignore[misc]


@pytest.mark.parametrize("text", ["", "[1]", "{", "{" * 100_000, '"text"'])
def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_json_object(tmp_path / "config.json")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(ConfigError, match=r"config\.json could not be read as JSON: it is no file"):
        read_json_object(tmp_path / "config.json")


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name in ("binary.json", "nowhere.json"):
        with pytest.raises(ConfigError, match="could not be read as JSON"):
            read_json_object(tmp_path / name)


def test_importing_it_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, gpt_onnx.config; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
