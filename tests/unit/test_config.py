"""The configuration: usual values, synonyms, and what contradicts itself."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.config import SYNONYMS, GPTConfig, read_json_object
from gpt_onnx.errors import ConfigError

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
    with pytest.raises(ConfigError, match=r"here\.json has the unknown key 'n_embed'; known are activation"):
        GPTConfig.from_dict(SIZES | {"n_embed": 24}, origin="here.json")


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
        ({"position": "rotary"}, "position is 'rotary'; known are sinusoidal, learned"),
        ({"activation": "silu"}, "activation is 'silu'"),
        ({"norm": "rmsnorm"}, "norm is 'rmsnorm'"),
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


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name in ("binary.json", "nowhere.json"):
        with pytest.raises(ConfigError, match="could not be read as JSON"):
            read_json_object(tmp_path / name)


def test_importing_it_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, gpt_onnx.config; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
