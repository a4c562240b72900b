"""config.json: the model in words that clients know, and whole, for GPTConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_onnx.bundle import Manifest
from gpt_onnx.config import GPTConfig
from gpt_onnx.hf_words import llama_sizes

LLAMA_ACTIVATIONS = {
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
    "gelu_tanh": "gelu_pytorch_tanh",
}
"""Our words for activations, and transformers'."""
OURS = "gpt_onnx"
"""The key that holds the whole configuration, and the model_type of a model whose layers are not known."""


def _is_gpt2(manifest: Manifest, config: GPTConfig) -> bool:
    """Whether clients that know GPT-2 work out the cache's shape: a key for each head, heads n_embd wide."""
    whole = (
        config.n_kv_head == config.n_head and manifest.model.cache_head_size * config.n_head == config.n_embd
    )
    return whole and config.position != "rotary"


def _gpt2_words(manifest: Manifest, config: GPTConfig) -> dict[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_ctx": config.context_length,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.d_ff,
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _llama_words(manifest: Manifest, config: GPTConfig) -> dict[str, Any]:
    """Describe the model in Llama's words; ``head_dim`` is the cache's, which clients make by it."""
    return {
        **llama_sizes(config),
        "head_dim": manifest.model.cache_head_size,
        "hidden_act": LLAMA_ACTIVATIONS.get(config.activation, config.activation),
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _rope_scaling(config),
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _rope_scaling(config: GPTConfig) -> dict[str, Any] | None:
    """Return the scaling of rotary positions under the names that transformers gives its parts."""
    if config.rope_scaling is None:
        return None
    said = {
        "rope_type": config.rope_scaling.kind,
        "factor": config.rope_scaling.factor,
        "low_freq_factor": config.rope_scaling.low_freq_factor,
        "high_freq_factor": config.rope_scaling.high_freq_factor,
        "original_max_position_embeddings": config.rope_scaling.original_context_length,
    }
    return {key: value for key, value in said.items() if value is not None}


def _transformers_js(manifest: Manifest) -> dict[str, Any]:
    """Tell transformers.js which files to fetch: its names say a precision, and ours is always model.onnx.

    Versions before 4.3 do not read the cache's type off the graph.
    """
    half = {"kv_cache_dtype": "float16"} if manifest.precision == "fp16" else {}
    return {"dtype": "fp32", "use_external_data_format": len(manifest.graph.data_files), **half}


def config_json(manifest: Manifest, config: GPTConfig | None, special: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of config.json.

    The words are GPT-2's where the model has its shape, and else Llama's: clients work out the cache's shape
    from them, and those of GPT-2 have no word for grouped heads or for heads of another width.

    Args:
        manifest: What the bundle says of itself.
        config: The model; None where its layers are not known.
        special: The ids of the tokens that begin, end and pad a text, by role.
    """
    if config is None:
        described = {"vocab_size": manifest.model.vocab_size, "n_positions": manifest.model.context_length}
        return {"model_type": OURS, **described, **special}
    words = _gpt2_words if _is_gpt2(manifest, config) else _llama_words
    return {
        **words(manifest, config),
        **special,
        "transformers.js_config": _transformers_js(manifest),
        OURS: config.to_dict(),
    }
