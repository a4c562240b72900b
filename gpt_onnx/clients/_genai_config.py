"""genai_config.json: a dynamic graph described to onnxruntime-genai."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpt_onnx.bundle import Manifest
from gpt_onnx.clients._generation_config import ends_of, sampling_of
from gpt_onnx.config import GPTConfig

GENERATION_FACTOR = 4  # where positions have no limit, genai may allocate this many times the context


def _search(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling that onnxruntime-genai knows; it takes no temperature of 0."""
    greedy = not sampling["do_sample"] or sampling["temperature"] == 0
    return {
        "do_sample": not greedy,
        "repetition_penalty": sampling["repetition_penalty"],
        "temperature": sampling["temperature"] or 1.0,
        "top_k": sampling["top_k"],
        "top_p": sampling["top_p"],
    }


def _decoder(manifest: Manifest, config: GPTConfig) -> dict[str, Any]:
    return {
        "filename": manifest.graph.graphs["model"],
        "session_options": {"provider_options": []},
        "hidden_size": config.n_embd,
        "head_size": manifest.model.cache_head_size,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "num_hidden_layers": config.n_layer,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }


def genai_config_json(
    manifest: Manifest,
    config: GPTConfig,
    special: Mapping[str, Any],
    generation: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the content of genai_config.json; type "decoder", as "gpt2" means one combined cache.

    Args:
        manifest: What the bundle says of itself.
        config: The model.
        special: The ids of the tokens that begin, end and pad a text, by role.
        generation: What the model says of sampling.
    """
    limit = config.position_limit or GENERATION_FACTOR * config.context_length
    ends = ends_of(special) or [config.vocab_size - 1]
    return {
        "model": {
            "type": "decoder",
            "bos_token_id": special.get("bos_token_id", ends[0]),
            "eos_token_id": ends if len(ends) > 1 else ends[0],
            "pad_token_id": special.get("pad_token_id", ends[0]),
            "context_length": limit,
            "vocab_size": config.vocab_size,
            "decoder": _decoder(manifest, config),
        },
        "search": {
            "max_length": limit,
            "min_length": 0,
            "past_present_share_buffer": manifest.graph.attention == "gqa",
            **_search(sampling_of(generation)),
        },
    }
