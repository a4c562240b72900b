"""The configuration of a GPT, its synonyms in other people's files, and the named ones.

    >>> GPTConfig(vocab_size=50257, context_length=1024, n_embd=768, n_layer=12, n_head=12).head_size
    64

Standard library only, so that the runtime can read a configuration on a device.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from gpt_onnx._config_rules import (
    ACTIVATIONS,
    ATTENTION_SCALES,
    GATED_ACTIVATIONS,
    LARGEST,
    NORM_ORDERS,
    NORMS,
    POSITIONS,
    ROPE_STYLES,
    SINUSOIDAL_STYLES,
    SQRT_N_EMBD,
    check,
    check_positive,
)
from gpt_onnx._user_text import UTF8
from gpt_onnx.errors import ConfigError
from gpt_onnx.rope import RopeScaling, shown

__all__ = [
    "ACTIVATIONS",
    "ATTENTION_SCALES",
    "GATED_ACTIVATIONS",
    "LARGEST",
    "NORMS",
    "NORM_ORDERS",
    "POSITIONS",
    "ROPE_STYLES",
    "SINUSOIDAL_STYLES",
    "SYNONYMS",
    "GPTConfig",
    "named_config",
    "named_configs",
    "read_json_object",
]

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "context_length": ("block_size", "n_positions", "n_ctx", "max_position_embeddings", "max_seq_len"),
    "n_embd": ("d_model", "hidden_size", "dim", "embed_dim", "n_embed", "emb_dim"),
    "n_head": ("num_heads", "num_attention_heads", "n_heads"),
    "n_kv_head": ("num_key_value_heads", "n_kv_heads"),
    "n_layer": ("num_layers", "num_hidden_layers", "n_layers"),
    "d_ff": ("n_inner", "intermediate_size"),
    "head_size": ("head_dim",),
    "tie_embeddings": ("tie_word_embeddings",),
    "norm_eps": ("layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps"),
    "attention_scale_by_layer": ("scale_attn_by_inverse_layer_idx",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTConfig:
    """What a GPT is made of. ``None`` for a size means the usual value, which ``__post_init__`` fills in.

    Raises:
        ConfigError: if a value is out of its range or two of them contradict each other.
    """

    vocab_size: int
    """Rows of the token embedding and of the head."""
    context_length: int
    """Tokens that the model was trained on at once; the length of the table when positions are learned."""
    n_embd: int
    """Width of the residual stream."""
    n_layer: int
    """Number of transformer blocks."""
    n_head: int
    """Query heads per block."""
    n_kv_head: int = None  # type: ignore[assignment]  # filled in by __post_init__
    """Key and value heads per block; n_head is a multiple of it. None: n_head."""
    head_size: int = None  # type: ignore[assignment]
    """Width of one head. None: n_embd / n_head; n_head x head_size may differ from n_embd."""
    d_ff: int = None  # type: ignore[assignment]
    """Hidden width of the feed-forward network. None: 4 x n_embd."""
    position: str = "sinusoidal"
    """One of POSITIONS."""
    sinusoidal_style: str = "interleaved"
    """One of SINUSOIDAL_STYLES: sine and cosine of a pair side by side, or all sines, then all cosines."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    rope_style: str = "half"
    """One of ROPE_STYLES: element i turns with i + rope_size / 2 (Llama), or 2i with 2i + 1 (RoFormer)."""
    rope_size: int = None  # type: ignore[assignment]
    """Leading elements of each head that turn. None: all of them."""
    rope_scaling: RopeScaling | None = None
    """How rotary frequencies are lowered for a longer context; None: not at all."""
    norm: str = "layernorm"
    """One of NORMS."""
    norm_eps: float = 1e-5
    """Added to the variance, or to the mean square, in each norm."""
    norm_order: str = "pre"
    """One of NORM_ORDERS: x + f(norm(x)), or norm(x + f(x))."""
    final_norm: bool = True
    """Whether a norm stands before the head."""
    activation: str = "gelu"
    """One of ACTIVATIONS; swiglu and geglu multiply an activated projection with another."""
    qkv_bias: bool = False
    """Whether the query, key and value projections have a bias."""
    bias: bool = True
    """Whether the output projections, the feed-forward network and the norms have a bias."""
    proj_bias: bool = None  # type: ignore[assignment]
    """Whether the output projection of attention has a bias. None: as ``bias`` says."""
    mlp_bias: bool = None  # type: ignore[assignment]
    """Whether the feed-forward network has biases. None: as ``bias`` says."""
    norm_bias: bool = None  # type: ignore[assignment]
    """Whether norms have a bias. None: as ``bias`` says; an rmsnorm never has one."""
    attention_scale: float | str = "head_size"
    """Factor on the scores: a number, or the one of ATTENTION_SCALES under 1 / sqrt."""
    attention_scale_by_layer: bool = False
    """Whether layer i (from 0) divides its scores by i + 1 as well."""
    tie_embeddings: bool = True
    """Whether the head is the token embedding."""
    head_bias: bool = False
    """Whether the head has a bias."""
    embedding_scale: float | str = 1.0
    """Factor on the token embedding before positions are added; "sqrt" is sqrt(n_embd)."""
    dropout: float = 0.0
    """Probability, in training only, on the embeddings and on each residual branch."""

    def __post_init__(self) -> None:
        _fill_in(self)
        check(self)

    @property
    def group_size(self) -> int:
        """Query heads that share one key and value head."""
        return self.n_head // self.n_kv_head

    @property
    def qkv_size(self) -> int:
        """Width of the packed projection: queries, then keys, then values."""
        return (self.n_head + 2 * self.n_kv_head) * self.head_size

    @property
    def embedding_factor(self) -> float:
        """The number that the token embedding is multiplied by."""
        return math.sqrt(self.n_embd) if self.embedding_scale == SQRT_N_EMBD else float(self.embedding_scale)

    def score_scale(self, layer: int) -> float:
        """Return what the scores of a layer (from 0) are multiplied by before the softmax."""
        sizes = {"head_size": self.head_size, "n_embd": self.n_embd}
        scale = self.attention_scale
        factor = 1.0 / math.sqrt(sizes[scale]) if isinstance(scale, str) else float(scale)
        return factor / (layer + 1) if self.attention_scale_by_layer else factor

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of the KV cache for each token of one sequence, over all layers."""
        return 2 * self.n_layer * self.n_kv_head * self.head_size

    @property
    def position_limit(self) -> int | None:
        """The longest sequence that can be computed at all; None where positions are a formula."""
        return self.context_length if self.position == "learned" else None

    def replace(self, **changes: Any) -> GPTConfig:
        """Return a copy with some fields changed.

        Derived sizes that are not named are kept; what followed another field (_FOLLOWERS) follows it still.
        """
        follow = {
            name: None
            for name, (leaders, usual) in _FOLLOWERS.items()
            if any(leader in changes for leader in leaders) and getattr(self, name) == usual(self)
        }
        return dataclasses.replace(self, **(follow | changes))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in their declared order, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, origin: str = "configuration") -> GPTConfig:
        """Read a configuration whose keys may be synonyms (SYNONYMS); ``origin`` names it in errors.

        Raises:
            ConfigError: if a key is unknown or missing, or a value is out of its range.
        """
        fields = _own_names(values, origin)
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            raise ConfigError(
                f"{origin} has the unknown key {shown(unknown[0])}; known are {', '.join(sorted(known))}."
            )
        required = ("vocab_size", "context_length", "n_embd", "n_layer", "n_head")
        if missing := [name for name in required if fields.get(name) is None]:
            raise ConfigError(f"{origin} lacks {missing[0]!r}; a GPT needs {', '.join(required)}.")
        if isinstance(fields.get("rope_scaling"), Mapping):
            fields["rope_scaling"] = RopeScaling.from_dict(
                fields["rope_scaling"], origin=f"{origin}, rope_scaling"
            )
        return cls(**fields)


def _own_names(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Rename synonyms to the names of GPTConfig; a synonym beside its own name must agree with it."""
    renamed = dict(values)
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            if synonym not in renamed:
                continue
            value = renamed.pop(synonym)
            if renamed.setdefault(name, value) != value:
                raise ConfigError(
                    f"{origin} says {name} = {shown(renamed[name])} and {synonym} = {shown(value)}; "
                    "remove one."
                )
    return renamed


_FOLLOWERS: Mapping[str, tuple[tuple[str, ...], Callable[[GPTConfig], int | bool]]] = {
    "proj_bias": (("bias",), lambda config: config.bias),
    "mlp_bias": (("bias",), lambda config: config.bias),
    "norm_bias": (("bias", "norm"), lambda config: config.bias and config.norm != "rmsnorm"),
    "rope_size": (("head_size",), lambda config: config.head_size),
}
"""Fields whose usual value is that of others, which are named first."""


def _fill_in(config: GPTConfig) -> None:
    """Replace each None by the usual value; the dataclass is frozen, hence object.__setattr__."""

    def default(name: str, value: int | bool) -> None:
        if getattr(config, name) is None:
            object.__setattr__(config, name, value)

    check_positive(config, ("n_embd", "n_head"))
    default("n_kv_head", config.n_head)
    default("d_ff", 4 * config.n_embd)
    if config.head_size is None:
        if config.n_embd % config.n_head:
            raise ConfigError(
                f"n_embd = {config.n_embd} is not a multiple of n_head = {config.n_head}; "
                "change one, or set head_size."
            )
        object.__setattr__(config, "head_size", config.n_embd // config.n_head)
    for name, (_, usual) in _FOLLOWERS.items():
        default(name, usual(config))


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold one object.

    Raises:
        ConfigError: if the file is missing, not UTF-8 JSON, or not an object.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path} could not be read as JSON: it is no file.")
    try:
        values = json.loads(path.read_text(encoding=UTF8))
    except (OSError, ValueError, RecursionError) as exc:
        raise ConfigError(f"{path} could not be read as JSON: {exc}.") from exc
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds a {type(values).__name__}; it must hold one JSON object.")
    return values


def named_configs() -> list[str]:
    """Return the names that ``named_config`` knows: the TOML files of ``models/``."""
    folder = resources.files("gpt_onnx") / "models"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def named_config(name: str) -> GPTConfig:
    """Return a named configuration, e.g. ``gpt2`` or ``gpt2-sinusoidal``.

    Raises:
        ConfigError: if there is no such name.
    """
    if name not in named_configs():
        raise ConfigError(
            f"there is no configuration named {name!r}; known are {', '.join(named_configs())}."
        )
    text = (resources.files("gpt_onnx") / "models" / f"{name}.toml").read_text(encoding="utf-8")
    return GPTConfig.from_dict(tomllib.loads(text), origin=f"models/{name}.toml")
