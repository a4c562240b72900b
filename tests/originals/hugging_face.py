"""transformers' own models with random weights, and the same in float64 throughout.

transformers computes rotary angles and RMSNorm in float32 whatever the model's dtype is; ``exact`` replaces
both, so that float64 is float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

LLAMA_SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
}


GPT2_SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "n_positions": 160,
    "n_embd": 48,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": None,
    "eos_token_id": None,
}


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {}),
    "gpt2 gelu": ("gpt2", {"activation_function": "gelu", "n_inner": 80}),
    "gpt2 relu": ("gpt2", {"activation_function": "relu", "tie_word_embeddings": False}),
    "gpt2 silu": ("gpt2", {"activation_function": "silu", "layer_norm_epsilon": 1e-3}),
    "gpt2 gelu_fast": ("gpt2", {"activation_function": "gelu_fast"}),
    "gpt2 gelu_pytorch_tanh": ("gpt2", {"activation_function": "gelu_pytorch_tanh"}),
    "gpt2 unscaled": ("gpt2", {"scale_attn_weights": False}),
    "gpt2 by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2 unscaled by layer": (
        "gpt2",
        {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    ),
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama head_dim": ("llama", {"head_dim": 16, "rms_norm_eps": 1e-3}),
    "llama gelu": ("llama", {"hidden_act": "gelu"}),
    "llama gelu_new": ("llama", {"hidden_act": "gelu_new"}),
    "llama theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "llama linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}}),
    "llama llama3": ("llama", {"rope_parameters": LLAMA3}),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 16, "num_key_value_heads": 3}),
    "mistral window as long as the context": ("mistral", {"sliding_window": 64, "head_dim": 8}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 3}),
}
"""A model_type, and what differs from its sizes."""


def _lively(model: nn.Module, seed: int) -> None:
    """Give weights as large as trained ones: attention that chooses, norms and biases that matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if any(part in name for part in ("c_attn.weight", "q_proj.weight", "k_proj.weight")):
                parameter.copy_(0.4 * noise)
            elif parameter.dim() > 1:
                parameter.copy_(0.15 * noise)
            else:
                parameter.add_(0.2 * noise)


def make_model(variant: str, seed: int = 0) -> Any:
    """Return a model of VARIANTS in float32, in evaluation mode."""
    import transformers

    library: Any = transformers
    model_type, changes = VARIANTS[variant]
    sizes = GPT2_SIZES if model_type == "gpt2" else LLAMA_SIZES
    config = library.AutoConfig.for_model(model_type, **copy.deepcopy(sizes | changes))
    model = library.AutoModelForCausalLM.from_config(config)
    _lively(model, seed)
    return model.eval()


class ExactNorm(nn.Module):
    """An RMSNorm in the dtype of its input."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight: Tensor = norm.weight
        self.epsilon: float = norm.variance_epsilon

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.epsilon))


def exact_frequencies(config: Any) -> NDArray[np.float64]:
    """The rotary frequencies in float64, by the formulas of the papers and of Llama 3.1."""
    said = config.rope_parameters
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    plain = said["rope_theta"] ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    if said["rope_type"] == "default":
        return np.asarray(plain)
    if said["rope_type"] == "linear":
        return np.asarray(plain / said["factor"])
    return np.array([_llama3(frequency, said) for frequency in plain])


def _llama3(frequency: float, said: Mapping[str, float]) -> float:
    length, wave = said["original_max_position_embeddings"], 2 * math.pi / frequency
    if wave < length / said["high_freq_factor"]:
        return frequency
    if wave > length / said["low_freq_factor"]:
        return frequency / said["factor"]
    smooth = (length / wave - said["low_freq_factor"]) / (said["high_freq_factor"] - said["low_freq_factor"])
    return (1 - smooth) * frequency / said["factor"] + smooth * frequency


class ExactRotary(nn.Module):
    """Rotary tables of float64 angles, in the dtype of the input."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.frequencies = exact_frequencies(config)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        angles = position_ids[..., None].double() * torch.from_numpy(self.frequencies)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


def _replace(module: nn.Module, config: Any) -> None:
    for name, child in module.named_children():
        if type(child).__name__.endswith("RMSNorm"):
            setattr(module, name, ExactNorm(child))
        elif type(child).__name__.endswith("RotaryEmbedding"):
            setattr(module, name, ExactRotary(config))
        else:
            _replace(child, config)


def exact(model: Any, dtype: torch.dtype) -> Any:
    """Return a copy whose every number is computed in ``dtype``, angles in float64."""
    twin = copy.deepcopy(model).to(dtype)
    _replace(twin, model.config)
    return twin.eval()


def save(model: Any, folder: Path, form: str) -> Path:
    """Write a model in one of the forms that folders have."""
    sizes = {"max_shard_size": "20KB"} if form == "shards" else {}
    model.save_pretrained(folder, **sizes)
    if form == "bin":
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return folder
