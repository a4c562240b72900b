"""Families of Hugging Face that are known by name and cannot be read, each with what it has that we lack."""

from __future__ import annotations

from collections.abc import Mapping

_EXPERTS = "a choice among several feed-forward networks (experts)"
_PARALLEL = "attention and feed-forward network side by side"
_BOTH_WAYS = "attention to later tokens as well"
_ENCODER = "an encoder"

REFUSED: Mapping[str, str] = {
    "arcee": "a feed-forward network with the square of ReLU",
    "bert": _BOTH_WAYS,
    "bloom": "a norm after the token embedding, and packed queries, keys and values of its own order",
    "codegen": f"{_PARALLEL}, and rotary positions on a part of each head",
    "cohere": f"{_PARALLEL}, and a factor on the logits",
    "cohere2": f"{_PARALLEL}, a factor on the logits, and attention to a window of tokens",
    "dbrx": _EXPERTS,
    "deepseek_v2": f"keys and values in a compressed form (MLA), and {_EXPERTS}",
    "deepseek_v3": f"keys and values in a compressed form (MLA), and {_EXPERTS}",
    "exaone": "other names of its tensors",
    "falcon": f"{_PARALLEL}, and packed queries, keys and values of its own order",
    "falcon_mamba": "a state instead of attention",
    "gemma": "norms that multiply with 1 + weight",
    "gemma2": "norms before and after each part, and soft limits on scores and logits",
    "gemma3": "norms before and after each part, and attention to a window of tokens",
    "gemma3_text": "norms before and after each part, and attention to a window of tokens",
    "glm": "rotary positions on a part of each head, and packed gate and up projections",
    "gpt_bigcode": "other names and shapes of its tensors (multi-query attention)",
    "gpt_neo": "attention to a window of tokens in every other layer",
    "gpt_neox": f"{_PARALLEL}, and packed queries, keys and values of its own order",
    "gpt_oss": f"{_EXPERTS}, and a learned sink of attention",
    "gptj": f"{_PARALLEL}, and rotary positions on a part of each head",
    "granite": "factors on embedding, residuals, attention and logits",
    "jamba": f"a state instead of attention in some layers, and {_EXPERTS}",
    "llama4": f"{_EXPERTS}, and layers without rotary positions",
    "llama4_text": f"{_EXPERTS}, and layers without rotary positions",
    "mamba": "a state instead of attention",
    "mamba2": "a state instead of attention",
    "minicpm": "factors on embedding, residuals and logits",
    "ministral": "attention to a window of tokens in some layers",
    "mixtral": _EXPERTS,
    "mpt": "packed queries, keys and values, and ALiBi slopes under names of its own",
    "nemotron": "norms that multiply with 1 + weight, and the square of ReLU",
    "olmo": "norms without weights",
    "olmo2": "norms after each part, and a norm on queries and keys",
    "olmoe": _EXPERTS,
    "openai-gpt": "norms after each part under names of its own",
    "opt": "learned positions that begin at 2, and names of its own",
    "persimmon": f"a norm on queries and keys, and {_PARALLEL}",
    "phi": f"{_PARALLEL}, and rotary positions on a part of each head",
    "phi3": "packed projections and rotary positions of the kind longrope",
    "phimoe": _EXPERTS,
    "qwen": "other names of its tensors; its successors Qwen2 and Qwen2.5 are read",
    "qwen2_moe": _EXPERTS,
    "qwen3": "a norm on each head's queries and keys",
    "qwen3_moe": f"a norm on each head's queries and keys, and {_EXPERTS}",
    "recurrent_gemma": "a state instead of attention in some layers",
    "rwkv": "a state instead of attention",
    "smollm3": "layers without rotary positions",
    "stablelm": "rotary positions on a part of each head, and norms with a bias in Llama's places",
    "starcoder2": "attention to a window of tokens, and norms with a bias in Llama's places",
    "t5": _ENCODER,
    "bart": _ENCODER,
    "xglm": "sinusoidal positions that begin at 2, and names of its own",
}
"""By model_type."""
