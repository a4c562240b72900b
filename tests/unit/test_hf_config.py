"""Hugging Face's config.json: what its keys mean, what they default to, and what is refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.checkpoint.readers.hf_folder import FAMILIES, find_family
from gpt_onnx.checkpoint.readers.hf_folder_family import check_keys, config_of
from gpt_onnx.checkpoint.readers.hf_folder_keys import NEUTRAL
from gpt_onnx.checkpoint.readers.hf_folder_refused import REFUSED
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError
from gpt_onnx.rope import RopeScaling
from tests.hf_configs import GPT2_CONFIG, LLAMA_CONFIG

FILE = Path("config.json")


def read(values: Mapping[str, Any]) -> GPTConfig:
    """Read a config.json as the reader does."""
    family = find_family(values, FILE)
    check_keys(family, values, FILE)
    return config_of(family, values, FILE)


def told(values: Mapping[str, Any]) -> str:
    """What is said of a config.json; a point alone where it is understood."""
    try:
        read(values)
    except ConfigError as exc:
        return str(exc)
    return "."


DEFAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gpt2": (
        {
            "vocab_size": 50257,
            "context_length": 1024,
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "d_ff": 3072,
        },
        {"activation": "gelu_tanh", "norm_eps": 1e-5, "tie_embeddings": True, "attention_scale": "head_size"},
    ),
    "llama": (
        {"vocab_size": 32000, "context_length": 2048, "n_embd": 4096, "n_layer": 32, "n_kv_head": 32},
        {"d_ff": 11008, "norm_eps": 1e-6, "tie_embeddings": False, "rope_theta": 10000.0, "qkv_bias": False},
    ),
    "mistral": (
        {"vocab_size": 32000, "context_length": 4096, "n_head": 32, "n_kv_head": 8, "d_ff": 14336},
        {"tie_embeddings": False, "rope_theta": 10000.0, "head_size": 128},
    ),
    "qwen2": (
        {"vocab_size": 151936, "context_length": 32768, "n_head": 32, "n_kv_head": 32, "d_ff": 22016},
        {"qkv_bias": True, "proj_bias": False, "mlp_bias": False, "norm_eps": 1e-6, "tie_embeddings": False},
    ),
}


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_keys_that_are_absent_have_the_familys_default(model_type: str) -> None:
    """The defaults are those of transformers' own configuration classes."""
    sizes, rest = DEFAULTS[model_type]
    within = {"max_position_embeddings": 4096} if model_type == "mistral" else {}
    config = config_of(FAMILIES[model_type], {"model_type": model_type, **within}, Path("config.json"))
    assert {name: getattr(config, name) for name in (sizes | rest)} == sizes | rest


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "mistral", "qwen2"])
def test_defaults_are_those_of_transformers(model_type: str) -> None:
    from transformers import AutoConfig

    theirs = AutoConfig.for_model(model_type).to_dict()
    unset = {"head_dim", "num_key_value_heads", "rope_parameters", "layer_types", "sliding_window"}
    for key, default in FAMILIES[model_type].defaults.items():
        if key in theirs and key not in unset:
            assert theirs[key] == default, key


GPT2_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gelu": ({"activation_function": "gelu"}, {"activation": "gelu"}),
    "gelu_fast": ({"activation_function": "gelu_fast"}, {"activation": "gelu_tanh"}),
    "gelu_pytorch_tanh": ({"activation_function": "gelu_pytorch_tanh"}, {"activation": "gelu_tanh"}),
    "relu": ({"activation_function": "relu"}, {"activation": "relu"}),
    "silu": ({"activation_function": "silu"}, {"activation": "silu"}),
    "unscaled": ({"scale_attn_weights": False}, {"attention_scale": 1.0}),
    "by layer": ({"scale_attn_by_inverse_layer_idx": True}, {"attention_scale_by_layer": True}),
    "reordered": ({"reorder_and_upcast_attn": True}, {"attention_scale": "head_size"}),
    "epsilon": ({"layer_norm_epsilon": 1e-6}, {"norm_eps": 1e-6}),
    "inner": ({"n_inner": 32}, {"d_ff": 32}),
    "synonyms": ({"num_hidden_layers": 2, "hidden_size": 8}, {"n_layer": 2}),
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
SCALED = RopeScaling(
    kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_length=16
)
LLAMA_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "theta": ({"rope_theta": 5e5}, {"rope_theta": 5e5, "rope_scaling": None}),
    "theta since 5": ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, {"rope_theta": 5e5}),
    "theta inside wins": ({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, {"rope_theta": 5e5}),
    "linear": (
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_scaling": RopeScaling(kind="linear", factor=2.0)},
    ),
    "llama3": ({"rope_scaling": LLAMA3, "rope_theta": 5e5}, {"rope_scaling": SCALED, "rope_theta": 5e5}),
    "llama3 since 5": ({"rope_parameters": LLAMA3 | {"rope_theta": 5e5}}, {"rope_scaling": SCALED}),
    "llama3 with both words": ({"rope_scaling": LLAMA3 | {"type": "llama3"}}, {"rope_scaling": SCALED}),
    "llama3 without original": (
        {"rope_scaling": {k: v for k, v in LLAMA3.items() if not k.startswith("original")}},
        {"rope_scaling": RopeScaling(**{**_fields, "original_context_length": 32})}
        if (_fields := {name: getattr(SCALED, name) for name in RopeScaling.__slots__})
        else {},
    ),
    "gelu": ({"hidden_act": "gelu"}, {"activation": "geglu"}),
    "gelu_new": ({"hidden_act": "gelu_new"}, {"activation": "geglu_tanh"}),
    "head_dim": ({"head_dim": 4}, {"head_size": 4}),
    "mistral": ({"model_type": "mistral", "architectures": None, "sliding_window": 32}, {"qkv_bias": False}),
    "no window": ({"model_type": "mistral", "architectures": None, "sliding_window": None}, {"n_kv_head": 2}),
    "qwen2": (
        {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "sliding_window": 8},
        {"qkv_bias": True, "proj_bias": False},
    ),
    "full layers": ({"layer_types": ["full_attention", "full_attention"]}, {"n_layer": 2}),
    "precision of training": ({"pretraining_tp": 2}, {"n_layer": 2}),
    "neutral": ({"logits_scaling": 1.0, "num_experts": 0, "quantization_config": None}, {"n_layer": 2}),
}


@pytest.mark.parametrize("case", GPT2_FIELDS)
def test_keys_of_gpt2(case: str) -> None:
    keys, fields = GPT2_FIELDS[case]
    config = read(GPT2_CONFIG | keys)
    assert {name: getattr(config, name) for name in fields} == fields


@pytest.mark.parametrize("case", LLAMA_FIELDS)
def test_keys_of_llama(case: str) -> None:
    keys, fields = LLAMA_FIELDS[case]
    config = read(LLAMA_CONFIG | keys)
    assert {name: getattr(config, name) for name in fields} == fields


MISTRAL: dict[str, Any] = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
LACKING: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "cross-attention": (
        GPT2_CONFIG,
        {"add_cross_attention": True},
        "add_cross_attention = True, which means attention",
    ),
    "activation": (
        GPT2_CONFIG,
        {"activation_function": "tanh"},
        "activation_function = 'tanh'; known are gelu,",
    ),
    "relu in a gate": (LLAMA_CONFIG, {"hidden_act": "relu"}, "hidden_act = 'relu'; known are silu"),
    "classifier": (
        GPT2_CONFIG,
        {"architectures": ["GPT2ForSequenceClassification"]},
        "GPT2LMHeadModel and GPT2Model",
    ),
    "flag": (
        GPT2_CONFIG,
        {"tie_word_embeddings": "yes"},
        "tie_word_embeddings = 'yes'; it must be true or false",
    ),
    "two names": (GPT2_CONFIG, {"hidden_size": 9}, "n_embd = 8 and hidden_size = 9; remove one"),
    "heads": (GPT2_CONFIG, {"n_head": 3}, "n_embd = 8 is not a multiple of n_head = 3"),
    "layers": (GPT2_CONFIG, {"n_layer": "two"}, "n_layer is 'two'"),
    "quantised": (
        LLAMA_CONFIG,
        {"quantization_config": {"bits": 4}},
        "quantization_config = .*stored quantised",
    ),
    "experts": (LLAMA_CONFIG, {"num_local_experts": 8}, r"num_local_experts = 8, .*\(experts\)"),
    "logits": (
        LLAMA_CONFIG,
        {"logits_scaling": 8.0},
        "logits_scaling = 8.0, which means a divisor of the logits",
    ),
    "both ways": (
        LLAMA_CONFIG,
        {"is_causal": False},
        "is_causal = False, which means attention to the tokens behind",
    ),
    "window": (
        LLAMA_CONFIG,
        MISTRAL | {"sliding_window": 16},
        "sliding_window = 16 .*lower max_position_embeddings",
    ),
    "window by default": (LLAMA_CONFIG, MISTRAL | {"max_position_embeddings": 8192}, "sliding_window = 4096"),
    "window in qwen2": (
        LLAMA_CONFIG,
        {"model_type": "qwen2", "architectures": None, "use_sliding_window": True},
        "use_sliding_window = True",
    ),
    "kinds of layers": (
        LLAMA_CONFIG,
        {"layer_types": ["full_attention", "sliding_attention"]},
        "layer_types with 'sliding_attention'",
    ),
    "dynamic": (
        LLAMA_CONFIG,
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "'dynamic': .*tokens in the cache",
    ),
    "yarn": (LLAMA_CONFIG, {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "'yarn': it scales"),
    "longrope": (
        LLAMA_CONFIG,
        {"rope_scaling": {"type": "longrope"}},
        "'longrope': .*; known are default, linear",
    ),
    "unknown scaling": (LLAMA_CONFIG, {"rope_scaling": {"type": "spiral"}}, "'spiral': it is unknown"),
    "no factor": (LLAMA_CONFIG, {"rope_scaling": {"type": "linear"}}, "lacks 'factor'"),
    "scaling of text": (LLAMA_CONFIG, {"rope_scaling": "linear"}, "'linear'; they must be a table"),
    "scalings by layer": (
        LLAMA_CONFIG,
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}},
        "a table 'full_attention' for layers of a kind",
    ),
    "two scalings": (
        LLAMA_CONFIG,
        {"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 1e4}},
        "both rope_scaling and rope_parameters",
    ),
    "part of a head": (LLAMA_CONFIG, {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
    "unknown family": (
        LLAMA_CONFIG,
        {"model_type": "moonbeam"},
        "'moonbeam', which cannot be read: it is not known",
    ),
    "no family": (LLAMA_CONFIG, {"model_type": None}, "model_type None, which cannot be read"),
    "qwen3": (
        LLAMA_CONFIG,
        {"model_type": "qwen3"},
        "a norm on each head's queries and keys; known are gpt2, llama,",
    ),
}


@pytest.mark.parametrize("case", LACKING)
def test_what_our_gpt_lacks_is_refused_by_name(case: str) -> None:
    base, keys, message = LACKING[case]
    said = told(base | keys)
    assert re.search(message, said), said
    assert said.startswith("config.json")


@pytest.mark.parametrize("model_type", REFUSED)
def test_every_family_that_is_known_and_lacking_is_told_why(model_type: str) -> None:
    said = told(LLAMA_CONFIG | {"model_type": model_type})
    assert f"'{model_type}', which cannot be read: it has {REFUSED[model_type]}; known are" in said


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 3, 0.5, float("nan"), float("inf"), 10**30, "x", "", "a" * 500),
    *([], [1], [None], [[]], ["full_attention"], {}, {"a": 1}, {"rope_type": ["x"]}, {"type": None}),
    {"type": "llama3", "factor": "a"},
    {"rope_type": "linear", "factor": 2, "original_max_position_embeddings": []},
)


@pytest.mark.parametrize("model_type", DEFAULTS)
def test_whatever_a_key_holds_is_understood_or_refused_in_a_sentence(model_type: str) -> None:
    sizes = GPT2_CONFIG if model_type == "gpt2" else LLAMA_CONFIG
    base = sizes | {"model_type": model_type, "architectures": None}
    for key in (*FAMILIES[model_type].defaults, *NEUTRAL, "architectures"):
        for value in ODD_VALUES:
            said = told(base | {key: value})
            assert said.endswith("."), (key, value)
            assert "\n" not in said, (key, value)
