"""Hugging Face's gpt2: GPT-2 and what was trained in its form.

Its Conv1D stores (in, out). Causal masks, which old versions stored beside the weights, are passed over.
``reorder_and_upcast_attn`` changes the precision of a step and no result, and is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_onnx.checkpoint.naming import Name, Naming
from gpt_onnx.checkpoint.readers.hf_folder_family import Claim, Family, Values, shown
from gpt_onnx.errors import ConfigError

ACTIVATIONS: Mapping[str, str] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Hugging Face's words for activations, and ours."""

_DEFAULTS: dict[str, Any] = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "tie_word_embeddings": True,
}


def activation_of(key: str, word: object, words: Mapping[str, str]) -> str:
    """Return our word for an activation.

    Raises:
        ConfigError: if it is none that we have.
    """
    if not isinstance(word, str) or word not in words:
        raise ConfigError(f"it has {key} = {shown(word)}; known are {', '.join(words)}")
    return words[word]


def flag(values: Values, key: str) -> bool:
    """Return a key that must be true or false.

    Raises:
        ConfigError: if it is neither.
    """
    if type(values[key]) is not bool:
        raise ConfigError(f"it has {key} = {shown(values[key])}; it must be true or false")
    return bool(values[key])


def describe(values: Values) -> dict[str, Any]:
    """See Family."""
    return {
        "vocab_size": values["vocab_size"],
        "context_length": values["n_positions"],
        "n_embd": values["n_embd"],
        "n_layer": values["n_layer"],
        "n_head": values["n_head"],
        "d_ff": values["n_inner"],
        "position": "learned",
        "norm_eps": values["layer_norm_epsilon"],
        "activation": activation_of("activation_function", values["activation_function"], ACTIVATIONS),
        "qkv_bias": True,
        "attention_scale": "head_size" if flag(values, "scale_attn_weights") else 1.0,
        "attention_scale_by_layer": flag(values, "scale_attn_by_inverse_layer_idx"),
        "tie_embeddings": flag(values, "tie_word_embeddings"),
    }


_CONV1D = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
_NORMS = ("ln_1", "ln_2")

NAMING = Naming(
    names=(
        Name("wte.weight", "wte.weight"),
        Name("wpe.weight", "wpe.weight"),
        *(Name(f"h.{{layer}}.{part}.weight", f"h.{{layer}}.{part}.weight", True) for part in _CONV1D),
        *(Name(f"h.{{layer}}.{part}.bias", f"h.{{layer}}.{part}.bias") for part in (*_CONV1D, *_NORMS)),
        *(Name(f"h.{{layer}}.{part}.weight", f"h.{{layer}}.{part}.weight") for part in _NORMS),
        Name("ln_f.weight", "ln_f.weight"),
        Name("ln_f.bias", "ln_f.bias"),
    ),
    ignored=("h.{layer}.attn.bias", "h.{layer}.attn.masked_bias"),
)

GPT2 = Family(
    model_type="gpt2",
    architectures=("GPT2LMHeadModel", "GPT2Model"),
    defaults=_DEFAULTS,
    describe=describe,
    naming=NAMING,
    prefix="transformer.",
    layers_key="n_layer",
    claims=(
        Claim("vocab_size", "wte.weight", 0, "tokens"),
        Claim("n_embd", "wte.weight", 1, "columns"),
        Claim("n_positions", "wpe.weight", 0, "positions"),
        Claim("n_inner", "h.0.mlp.c_fc.weight", 0, "outputs"),
    ),
    synonyms={
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)
