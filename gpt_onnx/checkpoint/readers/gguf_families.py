"""The architectures of GGUF that are read: their configuration in ours, and the names of their tensors.

llama.cpp turns queries and keys of ``llama`` in pairs of neighbours, and its converter exchanged their rows
for that; ``permuted`` says so, and the reader puts them back. Those of ``qwen2`` are turned in halves as they
are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpt_onnx.checkpoint.gguf_metadata import Keys
from gpt_onnx.checkpoint.gguf_store import GgufStore
from gpt_onnx.checkpoint.naming import Name, Naming
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError
from gpt_onnx.rope import RopeScaling, frequencies

FACTORS = "rope_freqs.weight"
HEAD = "output.weight"
SAME = 1e-5  # relative difference of factors that were computed in float32

NEUTRAL: Mapping[str, Collection[Any] | None] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "logit_scale": (0.0, 1.0),
    "pooling_type": None,
    "residual_scale": (0.0, 1.0),
    "rope.scaling.attn_factor": (0.0, 1.0),
    "rope.scaling.finetuned": None,
    "rope.scaling.original_context_length": None,
    "tensor_data_layout": None,
    "use_parallel_residual": (False,),
}
"""Keys that change nothing where they have one of these values; None: whatever they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One architecture."""

    naming: Naming
    fixed: Mapping[str, Any]
    """Fields of GPTConfig that no file changes."""
    eps: str
    """The key of the norms' epsilon."""
    permuted: bool = False
    """Whether rows of queries and keys were exchanged for llama.cpp's rotary positions."""
    pre: str | None = None
    """How its tokenizers cut text up where a file does not say."""
    biases: Mapping[str, str] = field(default_factory=dict)
    """Flags of GPTConfig that a tensor of the first layer decides."""


def _layer(theirs: str, ours: str) -> tuple[Name, Name]:
    return (
        Name(f"blk.{{layer}}.{theirs}.weight", f"h.{{layer}}.{ours}.weight"),
        Name(f"blk.{{layer}}.{theirs}.bias", f"h.{{layer}}.{ours}.bias"),
    )


_COMMON = (
    Name("token_embd.weight", "wte.weight"),
    Name("output_norm.weight", "ln_f.weight"),
    Name("output_norm.bias", "ln_f.bias"),
    Name(HEAD, "lm_head.weight"),
    *_layer("attn_norm", "ln_1"),
    *_layer("attn_output", "attn.c_proj"),
    *_layer("ffn_norm", "ln_2"),
    *_layer("ffn_up", "mlp.c_fc"),
    *_layer("ffn_down", "mlp.c_proj"),
)
_GATED = Naming(
    (
        *_COMMON,
        *_layer("attn_q", "attn.q"),
        *_layer("attn_k", "attn.k"),
        *_layer("attn_v", "attn.v"),
        *_layer("ffn_gate", "mlp.c_gate"),
    ),
    (FACTORS,),
)
_LLAMA = {"position": "rotary", "norm": "rmsnorm", "activation": "swiglu", "bias": False}

FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        naming=Naming(
            (*_COMMON, Name("position_embd.weight", "wpe.weight"), *_layer("attn_qkv", "attn.c_attn"))
        ),
        fixed={"position": "learned", "activation": "gelu_tanh", "qkv_bias": True},
        eps="attention.layer_norm_epsilon",
        pre="gpt-2",
    ),
    "llama": Family(
        naming=_GATED,
        fixed=_LLAMA,
        eps="attention.layer_norm_rms_epsilon",
        permuted=True,
        biases={
            "qkv_bias": "blk.0.attn_q.bias",
            "proj_bias": "blk.0.attn_output.bias",
            "mlp_bias": "blk.0.ffn_up.bias",
        },
    ),
    "qwen2": Family(
        naming=_GATED, fixed=_LLAMA | {"qkv_bias": True}, eps="attention.layer_norm_rms_epsilon", pre=None
    ),
}
"""By ``general.architecture``."""


def _rows(keys: Keys, store: GgufStore) -> int:
    """Return the vocabulary, which the embedding's rows and the file's own number must agree on."""
    embedding = store.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{store.path} has no token_embd.weight with a row for each token.")
    rows = embedding.shape[0]
    if keys.count("vocab_size", rows) != rows:
        raise keys.fault("vocab_size", f"{rows}, the rows of token_embd.weight,")
    return rows


def _head_size(keys: Keys) -> int:
    heads = keys.count("attention.head_count")
    size = keys.count("attention.key_length", max(1, keys.count("embedding_length") // heads))
    if keys.count("attention.value_length", size) != size:
        raise keys.fault("attention.value_length", f"{size}, the size of a key,")
    return size


def _refuse_window(keys: Keys, context_length: int) -> None:
    """Refuse attention to a window of the last tokens that is shorter than the context."""
    window = keys.find("attention.sliding_window")
    if window is not None and not (type(window) is int and (window == 0 or window >= context_length)):
        raise keys.fault("attention.sliding_window", f"attention to all {context_length} tokens")


def _by_factors(keys: Keys, store: GgufStore, size: int, theta: float) -> RopeScaling:
    """Return the scaling that gives the factors stored as rope_freqs.weight, which is Llama 3's.

    Raises:
        CheckpointError: if it is another.
    """
    factors = store.read(FACTORS).astype(np.float64).ravel()
    for length in (1 << power for power in range(9, 18)):
        scaling = RopeScaling(
            kind="llama3",
            factor=float(factors.max(initial=1.0)),
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_context_length=length,
        )
        wanted = np.divide(frequencies(size, theta), frequencies(size, theta, scaling))
        if wanted.shape == factors.shape and np.allclose(factors, wanted, rtol=SAME, atol=0):
            return scaling
    raise CheckpointError(
        f"{keys.path} has {FACTORS}, factors on rotary frequencies that are not those of Llama 3; known are "
        "linear scaling and Llama 3's."
    )


def _scaling(keys: Keys, store: GgufStore, size: int, theta: float) -> RopeScaling | None:
    """Return how rotary frequencies are scaled.

    Raises:
        CheckpointError: if it is in a way that we lack.
    """
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0))
    kind = keys.word("rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        raise keys.fault("rope.scaling.type", "linear scaling, or none,")
    linear = RopeScaling(kind="linear", factor=factor) if kind == "linear" and factor not in (0, 1) else None
    if FACTORS not in store.tensors:
        return linear
    if linear is not None:
        raise CheckpointError(f"{keys.path} has both {FACTORS} and linear scaling; one was expected.")
    return _by_factors(keys, store, size, theta)


def _rotary(keys: Keys, store: GgufStore, family: Family, size: int) -> dict[str, Any]:
    turned = keys.count("rope.dimension_count", size)
    if turned != size:
        raise keys.fault("rope.dimension_count", f"{size}, the size of a head,")
    theta = keys.number("rope.freq_base", 10000.0)
    return {"rope_theta": theta, "rope_scaling": _scaling(keys, store, size, theta)}


def config_of(family: Family, keys: Keys, store: GgufStore, *, tied: bool) -> GPTConfig:
    """Return the configuration of a file.

    Raises:
        CheckpointError: if a key is missing, of a wrong type, or asks for what we lack.
        ConfigError: if the numbers contradict each other.
    """
    rows, context, size = _rows(keys, store), keys.count("context_length"), _head_size(keys)
    heads, width = keys.count("attention.head_count"), keys.count("embedding_length")
    _refuse_window(keys, context)
    rotary = _rotary(keys, store, family, size) if family.fixed["position"] == "rotary" else {}
    biases: dict[str, Any] = {name: tensor in store.tensors for name, tensor in family.biases.items()}
    config = GPTConfig(
        vocab_size=rows,
        context_length=context,
        n_embd=width,
        n_layer=keys.count("block_count"),
        n_head=heads,
        n_kv_head=keys.count("attention.head_count_kv", heads),
        head_size=size,
        d_ff=keys.count("feed_forward_length", 4 * width),
        norm_eps=keys.number(family.eps),
        tie_embeddings=tied,
        **family.fixed,
        **biases,
        **rotary,
    )
    keys.refuse_others(NEUTRAL)
    return config
