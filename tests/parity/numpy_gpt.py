"""A GPT in float64 NumPy, written from the equations of the papers: the oracle of parity tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from gpt_onnx.config import GPTConfig

Array = NDArray[np.float64]

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def frequency(config: GPTConfig, pair: int) -> float:
    """Radians a token, scaled as the programs do that trained such models."""
    size, theta, scaling = config.rope_size, config.rope_theta, config.rope_scaling
    plain = math.pow(theta, -2 * pair / size)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "ntk":
        return math.pow(theta * math.pow(scaling.factor, size / (size - 2)), -2 * pair / size)
    low, high, length = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_context_length
    assert low
    assert high
    assert length
    wavelength = 2 * math.pi / plain
    if wavelength > length / low:
        return plain / scaling.factor
    if wavelength < length / high:
        return plain
    smooth = (length / wavelength - low) / (high - low)
    return (1 - smooth) * plain / scaling.factor + smooth * plain


def turned(x: Array, config: GPTConfig) -> Array:
    """Turn (S, D) by the angle of each position, one pair at a time ("RoFormer", equation 34)."""
    out, half = x.copy(), config.rope_size // 2
    for pair in range(half):
        first, second = (pair, pair + half) if config.rope_style == "half" else (2 * pair, 2 * pair + 1)
        angle = np.arange(len(x)) * frequency(config, pair)
        out[:, first] = x[:, first] * np.cos(angle) - x[:, second] * np.sin(angle)
        out[:, second] = x[:, second] * np.cos(angle) + x[:, first] * np.sin(angle)
    return out


def alibi_slopes(n_head: int) -> list[float]:
    """Return the slopes as the authors' program does ("Train Short, Test Long")."""
    if math.log2(n_head).is_integer():
        start = 2 ** (-(2 ** -(math.log2(n_head) - 3)))
        return [start * start**head for head in range(n_head)]
    below = 2 ** math.floor(math.log2(n_head))
    return alibi_slopes(below) + alibi_slopes(2 * below)[0::2][: n_head - below]


class NumpyGPT:
    """The equations in float64, as they stand in the papers; nothing from PyTorch."""

    def __init__(self, config: GPTConfig, weights: Mapping[str, Array]) -> None:
        self.config, self.weights = config, weights

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", np.float64(0))

    def norm(self, x: Array, name: str) -> Array:
        centre = 0.0 if self.config.norm == "rmsnorm" else x.mean(axis=-1, keepdims=True)
        spread = np.sqrt(((x - centre) ** 2).mean(axis=-1, keepdims=True) + self.config.norm_eps)
        return np.asarray(
            (x - centre) / spread * self.weights[f"{name}.weight"] + self.weights.get(f"{name}.bias", 0.0)
        )

    def positions(self, length: int) -> Array:
        table = np.zeros((length, self.config.n_embd))
        if self.config.position == "learned":
            return self.weights["wpe.weight"][:length]
        if self.config.position != "sinusoidal":
            return table
        pairs = self.config.n_embd // 2
        for pair in range(pairs):
            angle = np.arange(length) / 10000 ** (2 * pair / self.config.n_embd)
            apart = self.config.sinusoidal_style == "concatenated"
            sine, cosine = (pair, pair + pairs) if apart else (2 * pair, 2 * pair + 1)
            table[:, sine], table[:, cosine] = np.sin(angle), np.cos(angle)
        return table

    def scale(self, layer: int) -> float:
        sizes = {"head_size": self.config.head_size, "n_embd": self.config.n_embd}
        chosen = self.config.attention_scale
        scale = 1 / math.sqrt(sizes[chosen]) if isinstance(chosen, str) else chosen
        return scale / (layer + 1) if self.config.attention_scale_by_layer else scale

    def attention(self, x: Array, layer: int) -> Array:
        config, length, name = self.config, len(x), f"h.{layer}.attn"
        packed = self.linear(x, f"{name}.c_attn").reshape(length, -1, config.head_size)
        keys, values = packed[:, config.n_head :][:, : config.n_kv_head], packed[:, -config.n_kv_head :]
        turn = partial(turned, config=config) if config.position == "rotary" else np.asarray
        slopes = alibi_slopes(config.n_head) if config.position == "alibi" else [0.0] * config.n_head
        distance = np.arange(length)[None, :] - np.arange(length)[:, None]
        heads = []
        for head in range(config.n_head):
            shared = head * config.n_kv_head // config.n_head
            scores = turn(packed[:, head]) @ turn(keys[:, shared]).T * self.scale(layer)
            scores = scores + slopes[head] * distance
            scores[np.triu_indices(length, 1)] = -np.inf
            heads.append(softmax(scores) @ values[:, shared])
        return self.linear(np.concatenate(heads, axis=-1), f"{name}.c_proj")

    def feed_forward(self, x: Array, layer: int) -> Array:
        name, kind = f"h.{layer}.mlp", self.config.activation
        hidden = self.linear(x, f"{name}.c_fc")
        if kind in GATES:
            hidden = ACTIVATIONS[GATES[kind]](self.linear(x, f"{name}.c_gate")) * hidden
        else:
            hidden = ACTIVATIONS[kind](hidden)
        return self.linear(hidden, f"{name}.c_proj")

    def logits(self, ids: list[int]) -> Array:
        """(S, V)."""
        x = self.weights["wte.weight"][ids] * self.config.embedding_factor + self.positions(len(ids))
        for layer in range(self.config.n_layer):
            for branch, name in ((self.attention, "ln_1"), (self.feed_forward, "ln_2")):
                if self.config.norm_order == "pre":
                    x = x + branch(self.norm(x, f"h.{layer}.{name}"), layer)
                else:
                    x = self.norm(x + branch(x, layer), f"h.{layer}.{name}")
        x = self.norm(x, "ln_f") if self.config.final_norm else x
        if self.config.tie_embeddings:
            return np.asarray(x @ self.weights["wte.weight"].T + self.weights.get("lm_head_bias", 0.0))
        return self.linear(x, "lm_head")
