"""The rules of GPTConfig: which values a field may have, and which contradict each other.

Standard library only, as gpt_onnx.config.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpt_onnx.errors import ConfigError
from gpt_onnx.rope import RopeScaling, shown

if TYPE_CHECKING:
    from gpt_onnx.config import GPTConfig

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh")
GATED_ACTIVATIONS = ("swiglu", "geglu", "geglu_tanh")
NORMS = ("layernorm", "rmsnorm")
NORM_ORDERS = ("pre", "post")
SINUSOIDAL_STYLES = ("interleaved", "concatenated")
ROPE_STYLES = ("half", "interleaved")
ATTENTION_SCALES = ("head_size", "n_embd")
SQRT_N_EMBD = "sqrt"  # embedding_scale = "sqrt" is sqrt(n_embd), as in "Attention Is All You Need"
LARGEST: Mapping[str, int] = {
    "vocab_size": 2**31 - 1,
    "context_length": 2**31 - 1,
    "n_embd": 2**20,
    "n_layer": 1024,
    "n_head": 2**16,
    "n_kv_head": 2**16,
    "head_size": 2**16,
    "d_ff": 2**24,
    "rope_size": 2**16,
}
"""Far above any GPT; a file that claims more is refused before a model of that size is even described."""
FLOAT32_MAX = 3.4e38


def check_positive(config: GPTConfig, names: tuple[str, ...]) -> None:
    """Refuse a count that is no integer, below 1, or absurdly large."""
    for name in names:
        value = getattr(config, name)
        if type(value) is not int or not 1 <= value <= LARGEST[name]:
            raise ConfigError(f"{name} is {shown(value)}; it must be an integer from 1 to {LARGEST[name]}.")


def _check_counts(config: GPTConfig) -> None:
    check_positive(config, tuple(LARGEST))
    _check_rope(config)
    if config.n_head % config.n_kv_head:
        raise ConfigError(f"n_head = {config.n_head} is not a multiple of n_kv_head = {config.n_kv_head}.")
    if config.position == "sinusoidal" and config.n_embd % 2:
        raise ConfigError(
            f"n_embd is {config.n_embd}; sinusoidal positions pair sines with cosines and need it even."
        )


def _check_rope(config: GPTConfig) -> None:
    if not isinstance(config.rope_scaling, RopeScaling | None):
        raise ConfigError(f"rope_scaling is {shown(config.rope_scaling)}; it must be a table or absent.")
    if config.position != "rotary":
        return
    if config.rope_size % 2 or config.rope_size > config.head_size:
        raise ConfigError(
            f"rope_size is {config.rope_size}; rotary positions turn pairs, so it must be even and at most "
            f"head_size = {config.head_size}."
        )
    if config.rope_scaling is not None and config.rope_scaling.kind == "ntk" and config.rope_size < 4:
        raise ConfigError(f"rope_size is {config.rope_size}; scaling of the kind ntk needs at least 4.")


_CHOICES = (
    ("position", POSITIONS),
    ("sinusoidal_style", SINUSOIDAL_STYLES),
    ("rope_style", ROPE_STYLES),
    ("norm", NORMS),
    ("norm_order", NORM_ORDERS),
    ("activation", ACTIVATIONS),
)
_FLAGS = (
    "final_norm",
    "qkv_bias",
    "bias",
    "proj_bias",
    "mlp_bias",
    "norm_bias",
    "attention_scale_by_layer",
    "tie_embeddings",
    "head_bias",
)


def _check_choices(config: GPTConfig) -> None:
    for name, choices in _CHOICES:
        if getattr(config, name) not in choices:
            raise ConfigError(f"{name} is {shown(getattr(config, name))}; known are {', '.join(choices)}.")
    for name in _FLAGS:
        if type(getattr(config, name)) is not bool:
            raise ConfigError(f"{name} is {shown(getattr(config, name))}; it must be true or false.")
    if config.norm == "rmsnorm" and config.norm_bias:
        raise ConfigError("norm is 'rmsnorm' and norm_bias is true; an rmsnorm has no bias.")
    _check_number(config, "norm_eps", config.norm_eps, above=0.0, below=1.0)
    _check_number(config, "dropout", config.dropout, above=-math.ulp(0.0), below=1.0)
    _check_number(config, "rope_theta", config.rope_theta, above=1.0, below=1e12)
    if config.embedding_scale != SQRT_N_EMBD:
        _check_number(config, "embedding_scale", config.embedding_scale, above=0.0, below=FLOAT32_MAX)
    if config.attention_scale not in ATTENTION_SCALES:
        _check_number(config, "attention_scale", config.attention_scale, above=0.0, below=FLOAT32_MAX)


def _check_number(config: GPTConfig, name: str, value: object, *, above: float, below: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and above < value < below):  # type: ignore[operator]
        raise ConfigError(
            f"{name} is {shown(value)}; it must be a number between {max(above, 0.0):g} and {below:g}."
        )


def check(config: GPTConfig) -> None:
    """Look at every field.

    Raises:
        ConfigError: naming the first that is out of its range, or contradicts another.
    """
    _check_counts(config)
    _check_choices(config)
