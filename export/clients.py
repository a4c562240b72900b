"""The files by which other clients understand a bundle: configuration, generation defaults, genai.

One function a file; each returns plain JSON values. Only keys that every supported version of a client knows.
"""

from __future__ import annotations

from typing import Any

from gpt_onnx.bundle import Manifest
from gpt_onnx.checkpoint.special_ids import special_ids as special_ids
from gpt_onnx.config import GPTConfig

SAMPLING = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0}
GENERATION_FACTOR = 4  # where positions have no limit, genai may allocate this many times the context


def config_json(manifest: Manifest, config: GPTConfig | None, special: dict[str, int]) -> dict[str, Any]:
    """Describe the model in GPT-2's words, which clients know, and whole under ``gpt_onnx``."""
    if config is None:
        described = {"vocab_size": manifest.model.vocab_size, "n_positions": manifest.model.context_length}
        return {"model_type": "gpt_onnx", **described, **special}
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
        **special,
        "transformers.js_config": {"use_external_data_format": 1},
        "gpt_onnx": config.to_dict(),
    }


def generation_config_json(special: dict[str, int]) -> dict[str, Any]:
    """Give the sampling defaults and the token that ends a text."""
    padding = {"pad_token_id": special["eos_token_id"]} if "eos_token_id" in special else {}
    return {**special, **padding, **SAMPLING}


def genai_config_json(manifest: Manifest, config: GPTConfig, special: dict[str, int]) -> dict[str, Any]:
    """Describe a dynamic graph to onnxruntime-genai; type "decoder", as "gpt2" means one combined cache."""
    limit = config.position_limit or GENERATION_FACTOR * config.context_length
    end = special.get("eos_token_id", config.vocab_size - 1)
    return {
        "model": {
            "type": "decoder",
            "bos_token_id": special.get("bos_token_id", end),
            "eos_token_id": end,
            "pad_token_id": end,
            "context_length": limit,
            "vocab_size": config.vocab_size,
            "decoder": _genai_decoder(manifest, config),
        },
        "search": {
            "do_sample": SAMPLING["do_sample"],
            "max_length": limit,
            "min_length": 0,
            "past_present_share_buffer": manifest.graph.attention == "gqa",
            "repetition_penalty": SAMPLING["repetition_penalty"],
            "temperature": SAMPLING["temperature"],
            "top_k": SAMPLING["top_k"],
            "top_p": SAMPLING["top_p"],
        },
    }


def _genai_decoder(manifest: Manifest, config: GPTConfig) -> dict[str, Any]:
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
