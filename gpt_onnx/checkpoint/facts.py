"""What tensors say about a configuration: sizes, biases, which parts there are.

The tensors come under our names (gpt_onnx.checkpoint.names), with the shapes that they have here:

    facts_of({"wte.weight": (53, 24), ...}).values["n_embd"]    # 24

What they cannot say is asked for (gpt_onnx.checkpoint.questions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_onnx.config import ACTIVATIONS, POSITIONS
from gpt_onnx.errors import CheckpointError, ConfigError

GATED = ("swiglu", "geglu", "geglu_tanh")
HEAD = re.compile(r"h\.0\.attn\.([qkv])\.([0-9]{1,6})\.weight")
LAYER = re.compile(r"h\.([0-9]{1,6})\..*")

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a configuration before anybody is asked."""

    values: Mapping[str, Any]
    """Fields of GPTConfig."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The answers that are left to a question, where tensors rule some of them out."""
    query_size: int | None = None
    """n_head x head_size, where the heads are not stored one by one."""
    key_size: int | None = None
    """n_kv_head x head_size, likewise."""

    def told(self, values: Mapping[str, Any], **choices: tuple[str, ...]) -> Facts:
        """Return the same with further values and choices."""
        return Facts(
            values={**self.values, **values},
            choices={**self.choices, **choices},
            query_size=self.query_size,
            key_size=self.key_size,
        )


def _dims(shapes: Shapes, name: str) -> tuple[int, int]:
    """Return the two dims of a weight that every GPT has.

    Raises:
        CheckpointError: if it is missing, or no matrix.
    """
    if name not in shapes:
        raise CheckpointError(f"no tensor is {name}; a GPT has one, and the table of names must name it.")
    if len(shape := shapes[name]) != 2:
        raise CheckpointError(f"{name} has the shape {list(shape)}; it must be a matrix.")
    return shape[0], shape[1]


def _rows(shapes: Shapes, name: str) -> int | None:
    return _dims(shapes, name)[0] if name in shapes else None


def _layers(shapes: Shapes) -> int:
    """Return the number of layers.

    Raises:
        CheckpointError: if one is missing between others.
    """
    found = {int(match[1]) for name in shapes if (match := LAYER.fullmatch(name))}
    gap = next((layer for layer in range(len(found)) if layer not in found), None)
    if gap is not None:
        raise CheckpointError(f"layers up to {max(found)} are stored, and layer {gap} is missing.")
    return len(found)


def _biases(shapes: Shapes, names: Iterable[str]) -> bool:
    """Whether any of some parts of layer 0 has a bias; one without, beside another with, is found later."""
    return any(f"{name}.bias" in shapes for name in names)


def _bias_values(shapes: Shapes) -> dict[str, bool]:
    query = [name.removesuffix(".weight") for name in shapes if name.startswith("h.0.attn.")]
    parts = {
        "qkv_bias": [name for name in query if not name.startswith("h.0.attn.c_proj")],
        "proj_bias": ["h.0.attn.c_proj"],
        "mlp_bias": ["h.0.mlp.c_fc", "h.0.mlp.c_gate", "h.0.mlp.c_proj"],
        "norm_bias": ["h.0.ln_1", "h.0.ln_2", "ln_f"],
    }
    values = {name: _biases(shapes, names) for name, names in parts.items()}
    kinds = {values[name] for name in ("proj_bias", "mlp_bias", "norm_bias")}
    return {**values, "bias": kinds.pop()} if len(kinds) == 1 else values


def _heads(shapes: Shapes) -> dict[str, int]:
    """Return the numbers of heads and their size, where each head is stored for itself."""
    heads = {
        part: {int(m[2]) for name in shapes if (m := HEAD.fullmatch(name)) and m[1] == part} for part in "qkv"
    }
    if not all(heads.values()):
        return {}
    return {
        "n_head": len(heads["q"]),
        "n_kv_head": len(heads["k"]),
        "head_size": _dims(shapes, f"h.0.attn.q.{min(heads['q'])}.weight")[0],
    }


def _sizes(shapes: Shapes) -> dict[str, int | None]:
    """Return the rows of all queries and of all keys."""
    query = _dims(shapes, "h.0.attn.c_proj.weight")[1]
    packed = _rows(shapes, "h.0.attn.c_attn.weight") or _rows(shapes, "h.0.attn.qkv_by_head.weight")
    if packed is not None:
        return {"query_size": query, "key_size": (packed - query) // 2}
    if (both := _rows(shapes, "h.0.attn.kv.weight")) is not None:
        return {"query_size": query, "key_size": both // 2}
    return {"query_size": query, "key_size": _rows(shapes, "h.0.attn.k.weight")}


def facts_of(shapes: Shapes) -> Facts:
    """Return what tensors say, by our names.

    Raises:
        CheckpointError: if a tensor that every GPT has is missing.
    """
    vocab_size, n_embd = _dims(shapes, "wte.weight")
    tied = "lm_head.weight" not in shapes
    values: dict[str, Any] = {
        "vocab_size": vocab_size,
        "n_embd": n_embd,
        "n_layer": _layers(shapes),
        **_heads(shapes),
        "d_ff": _dims(shapes, "h.0.mlp.c_fc.weight")[0],
        **_bias_values(shapes),
        "final_norm": "ln_f.weight" in shapes,
        "tie_embeddings": tied,
        "head_bias": ("lm_head_bias" if tied else "lm_head.bias") in shapes,
    }
    if values["norm_bias"]:
        values["norm"] = "layernorm"
    choices = {"activation": GATED if "h.0.mlp.c_gate.weight" in shapes else _ungated()}
    if "wpe.weight" in shapes:
        values.update(position="learned", context_length=_dims(shapes, "wpe.weight")[0])
    else:
        choices["position"] = tuple(position for position in POSITIONS if position != "learned")
    return Facts(values=values, choices=choices, **_sizes(shapes))


def _ungated() -> tuple[str, ...]:
    return tuple(name for name in ACTIVATIONS if name not in GATED)


def head_sizes(facts: Facts, values: Mapping[str, Any]) -> dict[str, int]:
    """Return what follows from the number of heads, where tensors hold all heads in one.

    Raises:
        ConfigError: if so many heads, or heads of that size, cannot be in them.
    """
    count = values.get("n_head")
    if facts.query_size is None or "head_size" in facts.values or type(count) is not int or count < 1:
        return {}
    size, rest = divmod(facts.query_size, count)
    if rest or not size:
        raise ConfigError(
            f"n_head is {count}; the queries have {facts.query_size} rows, which is no multiple."
        )
    key_size = facts.query_size if facts.key_size is None else facts.key_size
    if key_size % size or not key_size:
        raise ConfigError(
            f"n_head is {count}, so that a head has {size} rows; the keys have {key_size}, no multiple of it."
        )
    return {"head_size": size, "n_kv_head": key_size // size}
