"""Hugging Face's llama, mistral and qwen2: RMSNorm, rotary positions, grouped heads, a gated network.

Read where only configuration differs: attention to a window of tokens is refused, and so are rotary positions
whose angles depend on the length of the text (dynamic) or that scale attention too (yarn, longrope).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpt_onnx.checkpoint.naming import Name, Naming
from gpt_onnx.checkpoint.readers.hf_folder_family import Claim, Family, Values, shown
from gpt_onnx.checkpoint.readers.hf_gpt2 import activation_of, flag
from gpt_onnx.checkpoint.readers.hf_llama_rope import rope_fields
from gpt_onnx.errors import ConfigError

GATED: Mapping[str, str] = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_python": "geglu",
    "gelu_new": "geglu_tanh",
    "gelu_fast": "geglu_tanh",
    "gelu_accurate": "geglu_tanh",
    "gelu_pytorch_tanh": "geglu_tanh",
    "gelu_python_tanh": "geglu_tanh",
}
"""Hugging Face's words for the activation of a gated network, and ours."""

_DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "rope_parameters": None,
    "original_max_position_embeddings": None,
    "partial_rotary_factor": None,
    "attention_bias": False,
    "mlp_bias": False,
    "sliding_window": None,
    "layer_types": None,
    "tie_word_embeddings": False,
}


def check_window(values: Values) -> None:
    """Refuse attention to a window of the last tokens that is shorter than the context.

    Raises:
        ConfigError: naming the window.
    """
    window, context = values["sliding_window"], values["max_position_embeddings"]
    if window is not None and not (type(window) is int and type(context) is int and window >= context):
        raise ConfigError(
            f"it has sliding_window = {shown(window)} and max_position_embeddings = {shown(context)}: "
            "attention to a window of the last tokens, which our GPT lacks; where no text is longer than the "
            "window, lower max_position_embeddings to it"
        )


def window_notes(values: Values) -> tuple[str, ...]:
    """Tell of a window that the context just fills."""
    window = values["sliding_window"]
    if window is None:
        return ()
    return (
        f"The model attends to the last {window} tokens alone; the bundle does so too up to that length, and "
        "attends to all tokens beyond it.",
    )


def check_layers(values: Values) -> None:
    """Refuse layers whose attention is not to all tokens before.

    Raises:
        ConfigError: naming the kind of layer.
    """
    kinds = values["layer_types"]
    if kinds is None:
        return
    wrong = [kind for kind in kinds if kind != "full_attention"] if isinstance(kinds, list) else [kinds]
    if wrong:
        raise ConfigError(f"it has layer_types with {shown(wrong[0])}; every layer must be 'full_attention'")


def describe(values: Values) -> dict[str, Any]:
    """See Family."""
    check_window(values)
    check_layers(values)
    bias = flag(values, "attention_bias")
    return {
        "vocab_size": values["vocab_size"],
        "context_length": values["max_position_embeddings"],
        "n_embd": values["hidden_size"],
        "n_layer": values["num_hidden_layers"],
        "n_head": values["num_attention_heads"],
        "n_kv_head": values["num_key_value_heads"],
        "head_size": values["head_dim"],
        "d_ff": values["intermediate_size"],
        "position": "rotary",
        "norm": "rmsnorm",
        "norm_eps": values["rms_norm_eps"],
        "activation": activation_of("hidden_act", values["hidden_act"], GATED),
        "qkv_bias": bias,
        "proj_bias": bias,
        "mlp_bias": flag(values, "mlp_bias"),
        "bias": False,
        "tie_embeddings": flag(values, "tie_word_embeddings"),
        **rope_fields(values),
    }


def describe_qwen2(values: Values) -> dict[str, Any]:
    """See Family: queries, keys and values have biases, and nothing else has; a window is never in use."""
    return describe({**values, "sliding_window": None}) | {"qkv_bias": True, "proj_bias": False}


def _layer(theirs: str, ours: str) -> tuple[Name, Name]:
    """Return the names of a weight and a bias in a layer."""
    return (
        Name(f"layers.{{layer}}.{theirs}.weight", f"h.{{layer}}.{ours}.weight"),
        Name(f"layers.{{layer}}.{theirs}.bias", f"h.{{layer}}.{ours}.bias"),
    )


NAMING = Naming(
    names=(
        Name("embed_tokens.weight", "wte.weight"),
        Name("layers.{layer}.input_layernorm.weight", "h.{layer}.ln_1.weight"),
        *_layer("self_attn.q_proj", "attn.q"),
        *_layer("self_attn.k_proj", "attn.k"),
        *_layer("self_attn.v_proj", "attn.v"),
        *_layer("self_attn.o_proj", "attn.c_proj"),
        Name("layers.{layer}.post_attention_layernorm.weight", "h.{layer}.ln_2.weight"),
        *_layer("mlp.gate_proj", "mlp.c_gate"),
        *_layer("mlp.up_proj", "mlp.c_fc"),
        *_layer("mlp.down_proj", "mlp.c_proj"),
        Name("norm.weight", "ln_f.weight"),
    ),
    ignored=("layers.{layer}.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
)
CLAIMS = (
    Claim("vocab_size", "wte.weight", 0, "tokens"),
    Claim("hidden_size", "wte.weight", 1, "columns"),
    Claim("num_attention_heads", "h.0.attn.q.weight", 0, "outputs"),
    Claim("num_key_value_heads", "h.0.attn.k.weight", 0, "outputs"),
    Claim("intermediate_size", "h.0.mlp.c_gate.weight", 0, "outputs"),
)

LLAMA = Family(
    model_type="llama",
    architectures=("LlamaForCausalLM", "LlamaModel"),
    defaults=_DEFAULTS,
    describe=describe,
    naming=NAMING,
    prefix="model.",
    layers_key="num_hidden_layers",
    claims=CLAIMS,
    notes=window_notes,
)
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    architectures=("MistralForCausalLM", "MistralModel"),
    defaults=_DEFAULTS
    | {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
)
QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    architectures=("Qwen2ForCausalLM", "Qwen2Model"),
    defaults=_DEFAULTS
    | {
        "vocab_size": 151936,
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
    },
    describe=describe_qwen2,
    notes=lambda values: (),  # a window is never in use
)
