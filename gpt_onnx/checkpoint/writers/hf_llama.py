"""Hugging Face's llama, which LlamaForCausalLM loads; a bias that the model lacks is written as zeros.

Llama's attention has four biases or none, and its feed-forward network three or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_onnx.checkpoint.names import Naming
from gpt_onnx.checkpoint.readers.hf_llama import GATED, LLAMA
from gpt_onnx.checkpoint.writers._layout import Layout, Rule, misfits, one_of, same_as
from gpt_onnx.checkpoint.writers._parts import prefixed
from gpt_onnx.checkpoint.writers.hf_gpt2 import EVERY_LAYOUT, HEAD, first_scale, own_scale, words_of
from gpt_onnx.config import GPTConfig
from gpt_onnx.hf_words import llama_sizes
from gpt_onnx.rope import RopeScaling

WORDS = words_of(GATED)
SCALINGS = (None, "linear", "llama3")


def _scaling_kind(config: GPTConfig) -> str | None:
    return None if config.rope_scaling is None else config.rope_scaling.kind


RULES = (
    one_of("position", "rotary"),
    one_of("rope_style", "half"),
    same_as("rope_size", lambda config: config.head_size),
    Rule("rope_scaling", lambda config: SCALINGS, _scaling_kind),
    one_of("norm", "rmsnorm"),
    one_of("activation", *WORDS),
    Rule("attention_scale", lambda config: (own_scale(config),), first_scale),
    one_of("attention_scale_by_layer", False),
    *EVERY_LAYOUT,
)


def widened(config: GPTConfig) -> GPTConfig:
    """See Layout."""
    attention = config.qkv_bias or config.proj_bias
    return config.replace(qkv_bias=attention, proj_bias=attention)


def _scaling(scaling: RopeScaling | None) -> dict[str, Any] | None:
    """Return the scaling in Hugging Face's words."""
    if scaling is None:
        return None
    words: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind == "llama3":
        words |= {
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_context_length,
        }
    return words


def describe(config: GPTConfig, special: Mapping[str, int]) -> dict[str, Any]:
    """See Layout; rotary positions in the words that transformers 4 and 5 both read."""
    return {
        **llama_sizes(config),
        "head_dim": config.head_size,
        "hidden_act": WORDS[config.activation],
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": _scaling(config.rope_scaling),
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": special.get("bos_token_id"),
        "eos_token_id": special.get("eos_token_id"),
    }


LAYOUT = Layout(
    name="Hugging Face llama",
    family="huggingface",
    fits=lambda config: misfits(RULES, config),
    widened=widened,
    describe=describe,
    naming=Naming((*prefixed(LLAMA.naming, LLAMA.prefix).names, HEAD)),
)
