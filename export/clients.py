"""The files by which other clients understand a bundle: configuration, generation defaults, genai.

One function a file; each returns plain JSON values. Only keys that every supported version of a client knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpt_onnx.bundle import Manifest
from gpt_onnx.checkpoint import TokenizerFiles
from gpt_onnx.checkpoint.generation import ROLES, SAMPLING_WORDS
from gpt_onnx.checkpoint.special_ids import special_ids as special_ids
from gpt_onnx.checkpoint.writers.hf_llama import llama_sizes
from gpt_onnx.config import GPTConfig

SAMPLING = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0}
TRANSFORMERS_SAMPLING = SAMPLING | {"temperature": 1.0}
"""What transformers takes for a word that a generation_config.json lacks."""
LLAMA_ACTIVATIONS = {
    "swiglu": "silu",
    "geglu": "gelu",
    "geglu_tanh": "gelu_pytorch_tanh",
    "gelu_tanh": "gelu_pytorch_tanh",
}
"""Our words for activations, and transformers'."""
GENERATION_FACTOR = 4  # where positions have no limit, genai may allocate this many times the context


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
    """Describe the model in words that clients know, and whole under ``gpt_onnx``.

    The words are GPT-2's where the model has its shape, and else Llama's: clients work out the cache's shape
    from them, and those of GPT-2 have no word for grouped heads or for heads of another width.
    """
    if config is None:
        described = {"vocab_size": manifest.model.vocab_size, "n_positions": manifest.model.context_length}
        return {"model_type": "gpt_onnx", **described, **special}
    words = _gpt2_words if _is_gpt2(manifest, config) else _llama_words
    return {
        **words(manifest, config),
        **special,
        "transformers.js_config": _transformers_js(manifest),
        "gpt_onnx": config.to_dict(),
    }


def special_of(tokenizer: TokenizerFiles | None, generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of special tokens: as the checkpoint says, else as its tokenizer names them."""
    return special_ids(tokenizer) | {role: generation[role] for role in ROLES if role in generation}


def _ends(special: Mapping[str, Any]) -> list[int]:
    """Return the ids that end a text, which are one or a list."""
    ends = special.get("eos_token_id", [])
    return ends if isinstance(ends, list) else [ends]


def _sampling(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return how to sample: as the checkpoint says, its gaps filled as transformers fills them.

    A checkpoint that says nothing of it is sampled as every other is. One that gives a temperature or a cut
    without do_sample wants to be sampled.
    """
    said = {word: generation[word] for word in SAMPLING_WORDS if word in generation}
    if not said.keys() - {"repetition_penalty"}:
        return SAMPLING | said
    return TRANSFORMERS_SAMPLING | said


def generation_config_json(
    special: Mapping[str, Any], generation: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Give the sampling defaults and the tokens that begin, end and pad a text."""
    ends = _ends(special)
    padding = {"pad_token_id": ends[0]} if ends else {}
    return {**padding, **special, **_sampling(generation)}


def _genai_search(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling that onnxruntime-genai knows; it takes no temperature of 0."""
    greedy = not sampling["do_sample"] or sampling["temperature"] == 0
    return {
        "do_sample": not greedy,
        "repetition_penalty": sampling["repetition_penalty"],
        "temperature": sampling["temperature"] or 1.0,
        "top_k": sampling["top_k"],
        "top_p": sampling["top_p"],
    }


def genai_config_json(
    manifest: Manifest,
    config: GPTConfig,
    special: Mapping[str, Any],
    generation: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Describe a dynamic graph to onnxruntime-genai; type "decoder", as "gpt2" means one combined cache."""
    limit = config.position_limit or GENERATION_FACTOR * config.context_length
    ends = _ends(special) or [config.vocab_size - 1]
    return {
        "model": {
            "type": "decoder",
            "bos_token_id": special.get("bos_token_id", ends[0]),
            "eos_token_id": ends if len(ends) > 1 else ends[0],
            "pad_token_id": special.get("pad_token_id", ends[0]),
            "context_length": limit,
            "vocab_size": config.vocab_size,
            "decoder": _genai_decoder(manifest, config),
        },
        "search": {
            "max_length": limit,
            "min_length": 0,
            "past_present_share_buffer": manifest.graph.attention == "gqa",
            **_genai_search(_sampling(generation)),
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
