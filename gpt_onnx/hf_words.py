"""Words of Hugging Face's files, for those who read them, those who write them and those who check them.

    llama_sizes(config)["num_key_value_heads"]

Standard library only, as gpt_onnx.config.
"""

from __future__ import annotations

from typing import Any

from gpt_onnx.config import GPTConfig

ROLES = ("bos_token_id", "eos_token_id", "pad_token_id")
"""What config.json and generation_config.json say of the tokens that begin, end and pad a text."""
SAMPLING_WORDS = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""What generation_config.json says of sampling."""


def llama_sizes(config: GPTConfig) -> dict[str, Any]:
    """Return a model's sizes in Llama's words, but for the width of a head."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "hidden_size": config.n_embd,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
    }
