"""Hugging Face's gpt2, which GPT2LMHeadModel loads; a bias that the model lacks is written as zeros."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpt_onnx.checkpoint.names import Name, Naming
from gpt_onnx.checkpoint.readers.hf_gpt2 import ACTIVATIONS, GPT2
from gpt_onnx.checkpoint.writers._layout import Layout, Rule, misfits, one_of, same_as
from gpt_onnx.checkpoint.writers._parts import prefixed
from gpt_onnx.config import GPTConfig

HEAD = Name("lm_head.weight", "lm_head.weight")


def words_of(words: Mapping[str, str]) -> dict[str, str]:
    """Return the first of a family's words for each of our activations."""
    first: dict[str, str] = {}
    for word, ours in words.items():
        first.setdefault(ours, word)
    return first


def own_scale(config: GPTConfig) -> float:
    """Return the usual factor on the scores."""
    return 1 / math.sqrt(config.head_size)


def first_scale(config: GPTConfig) -> float:
    """Return the factor on the scores of the first layer, which no number of the layer divides."""
    return config.score_scale(0)


WORDS = words_of(ACTIVATIONS)
EVERY_LAYOUT = (
    one_of("norm_order", "pre"),
    one_of("final_norm", True),
    one_of("embedding_scale", 1.0),
    one_of("head_bias", False),
)
"""What no family of Hugging Face that is written has a choice in."""
RULES = (
    one_of("position", "learned"),
    one_of("norm", "layernorm"),
    one_of("activation", *WORDS),
    same_as("n_kv_head", lambda config: config.n_head),
    Rule("head_size", lambda config: (config.n_embd,), lambda config: config.n_head * config.head_size),
    Rule("attention_scale", lambda config: (own_scale(config), 1.0), first_scale),
    *EVERY_LAYOUT,
)


def widened(config: GPTConfig) -> GPTConfig:
    """See Layout: every module of gpt2 has a bias."""
    return config.replace(bias=True, qkv_bias=True, proj_bias=True, mlp_bias=True, norm_bias=True)


def describe(config: GPTConfig, special: Mapping[str, int]) -> dict[str, Any]:
    """See Layout."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.d_ff,
        "activation_function": WORDS[config.activation],
        "layer_norm_epsilon": config.norm_eps,
        "scale_attn_weights": first_scale(config) == own_scale(config),
        "scale_attn_by_inverse_layer_idx": config.attention_scale_by_layer,
        "tie_word_embeddings": config.tie_embeddings,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": 0.0,
        "bos_token_id": special.get("bos_token_id"),
        "eos_token_id": special.get("eos_token_id"),
    }


LAYOUT = Layout(
    name="Hugging Face gpt2",
    family="huggingface",
    fits=lambda config: misfits(RULES, config),
    widened=widened,
    describe=describe,
    naming=Naming((*prefixed(GPT2.naming, GPT2.prefix).names, HEAD)),
)
