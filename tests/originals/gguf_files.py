"""Models of transformers, written as llama.cpp's converter writes them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from torch import nn

VOCAB, CONTEXT = 96, 64


TYPES: Any = gguf.GGMLQuantizationType


KEYS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.{}.input_layernorm": "blk.{}.attn_norm",
    "model.layers.{}.self_attn.q_proj": "blk.{}.attn_q",
    "model.layers.{}.self_attn.k_proj": "blk.{}.attn_k",
    "model.layers.{}.self_attn.v_proj": "blk.{}.attn_v",
    "model.layers.{}.self_attn.o_proj": "blk.{}.attn_output",
    "model.layers.{}.post_attention_layernorm": "blk.{}.ffn_norm",
    "model.layers.{}.mlp.gate_proj": "blk.{}.ffn_gate",
    "model.layers.{}.mlp.up_proj": "blk.{}.ffn_up",
    "model.layers.{}.mlp.down_proj": "blk.{}.ffn_down",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "transformer.h.{}.ln_1": "blk.{}.attn_norm",
    "transformer.h.{}.attn.c_attn": "blk.{}.attn_qkv",
    "transformer.h.{}.attn.c_proj": "blk.{}.attn_output",
    "transformer.h.{}.ln_2": "blk.{}.ffn_norm",
    "transformer.h.{}.mlp.c_fc": "blk.{}.ffn_up",
    "transformer.h.{}.mlp.c_proj": "blk.{}.ffn_down",
}


LLAMA: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
}


def lively(model: nn.Module) -> Any:
    """Give every parameter a value that matters."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_query = any(part in name for part in ("q_proj", "k_proj", "c_attn"))
            scale = 0.45 if is_query and parameter.dim() > 1 else 0.15
            parameter.copy_(scale * noise if parameter.dim() > 1 else parameter + 0.2 * noise)
    return model.eval()


def llama(**changes: Any) -> Any:
    return lively(transformers.LlamaForCausalLM(transformers.LlamaConfig(**(LLAMA | changes))))


def qwen2(**changes: Any) -> Any:
    return lively(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**(LLAMA | changes))))


def gpt2(**changes: Any) -> Any:
    config = {"vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": 64, "n_layer": 2, "n_head": 4}
    return lively(transformers.GPT2LMHeadModel(transformers.GPT2Config(**(config | changes))))


def exchanged(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head as llama.cpp wants them: element i beside element i + half, one by one."""
    size, rows = array.shape[0] // heads, []
    for head in range(heads):
        for pair in range(size // 2):
            rows += [head * size + pair, head * size + pair + size // 2]
    return array[rows]


def named(name: str) -> str:
    """The name in GGUF of a parameter of transformers."""
    module, _, kind = name.rpartition(".")
    layer = next((part for part in module.split(".") if part.isdecimal()), "")
    pattern = ".".join("{}" if part.isdecimal() else part for part in module.split("."))
    return f"{KEYS[pattern].format(layer)}.{kind}"


def tensors_of(model: Any) -> dict[str, np.ndarray]:
    """What the converter makes of a model's parameters; a tied head is not stored."""
    config, found = model.config, {}
    for name, parameter in model.named_parameters():
        array = parameter.detach().numpy()
        if config.model_type == "gpt2" and parameter.dim() == 2 and ".h." in name:
            array = array.T.copy()
        if config.model_type == "llama" and ".q_proj." in name:
            array = exchanged(array, config.num_attention_heads)
        if config.model_type == "llama" and ".k_proj." in name:
            array = exchanged(array, config.num_key_value_heads)
        found[named(name)] = array
    return found


def write(
    path: Path,
    model: Any,
    kinds: Callable[[str, np.ndarray], Any] = lambda name, array: TYPES.F32,
    extra: Mapping[str, np.ndarray] | None = None,
    change: Callable[[Any], None] = lambda writer: None,
) -> dict[str, np.ndarray]:
    """Write a model as a GGUF file; return what the stored tensors stand for."""
    config, kind = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_file_type(0)
    if kind == "gpt2":
        writer.add_feed_forward_length(4 * config.hidden_size)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if kind == "llama":
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    change(writer)
    stands = {}
    for name, array in {**tensors_of(model), **(extra or {})}.items():
        wanted = kinds(name, array)
        data = array if wanted == TYPES.F32 else gguf.quantize(array, wanted)
        writer.add_tensor(name, data, raw_dtype=wanted)
        stands[name] = gguf.dequantize(data, wanted).astype(np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stands


def put(model: Any, stands: Mapping[str, np.ndarray]) -> Any:
    """The model with the values that a quantised file stands for."""
    changed, before = copy.deepcopy(model), tensors_of(model)
    with torch.no_grad():
        for name, parameter in changed.named_parameters():
            delta = stands[named(name)] - before[named(name)]
            if changed.config.model_type == "llama" and (".q_proj." in name or ".k_proj." in name):
                heads = changed.config.num_attention_heads if "q_proj" in name else 2
                where = np.argsort(exchanged(np.arange(delta.shape[0])[:, None], heads)[:, 0])
                parameter.copy_(torch.from_numpy(stands[named(name)][where]))
            elif changed.config.model_type == "gpt2" and parameter.dim() == 2 and ".h." in name:
                parameter.copy_(torch.from_numpy(stands[named(name)].T.copy()))
            else:
                parameter.copy_(torch.from_numpy(stands[named(name)]))
    return changed
