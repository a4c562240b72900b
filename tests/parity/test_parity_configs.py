"""Every kind of model that GPTConfig describes, every layout: exported, run and compared.

Three oracles that share no code: the gate (float64 PyTorch), a forward pass in float64 numpy written from
the equations, and the ONNX reference evaluator on the portable graph.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from scipy.special import erf

from gpt_onnx.bundle import open_bundle
from gpt_onnx.config import GPTConfig
from gpt_onnx.export.gate import GptReference, run_gate
from gpt_onnx.model import GPT
from gpt_onnx.rope import RopeScaling
from gpt_onnx.runtime import OnnxGPT, Sampling

Array = NDArray[np.float64]
GptMaker = Callable[..., GPT]
Exporter = Callable[..., Path]

CONFIGS: dict[str, dict[str, Any]] = {
    "sinusoidal, tied, gelu": {},
    "learned, free head with bias, relu, biased q k v": {
        "position": "learned",
        "tie_embeddings": False,
        "head_bias": True,
        "activation": "relu",
        "qkv_bias": True,
    },
    "heads of 12, narrower than the stream, scaled embeddings": {
        "n_head": 2,
        "head_size": 12,
        "activation": "gelu_tanh",
        "embedding_scale": "sqrt",
    },
    "grouped heads, no biases": {"n_kv_head": 2, "bias": False, "d_ff": 48},
    "one key head of 20, wider than the stream, learned, tied head with bias": {
        "n_kv_head": 1,
        "head_size": 20,
        "position": "learned",
        "qkv_bias": True,
        "head_bias": True,
    },
    "rotary, half, as Llama: rmsnorm, swiglu, grouped heads, no biases": {
        "position": "rotary",
        "norm": "rmsnorm",
        "norm_eps": 1e-6,
        "activation": "swiglu",
        "d_ff": 40,
        "bias": False,
        "n_kv_head": 2,
        "tie_embeddings": False,
        "rope_scaling": RopeScaling(
            kind="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_context_length=48,
        ),
        "rope_theta": 500.0,
    },
    "rotary, interleaved and partial, as GPT-J: geglu, heads of 12, scaled by layer": {
        "attention_scale_by_layer": True,
        "position": "rotary",
        "rope_style": "interleaved",
        "rope_size": 6,
        "n_head": 3,
        "n_kv_head": 1,
        "head_size": 12,
        "activation": "geglu",
        "qkv_bias": True,
        "rope_scaling": RopeScaling(kind="ntk", factor=4.0),
    },
    "alibi, six heads, silu": {
        "position": "alibi",
        "n_head": 6,
        "n_kv_head": 3,
        "head_size": 5,
        "activation": "silu",
        "attention_scale_by_layer": True,
    },
    "sinusoidal, sines before cosines, norms behind, no last norm": {
        "sinusoidal_style": "concatenated",
        "norm_order": "post",
        "final_norm": False,
        "activation": "geglu_tanh",
        "attention_scale": "n_embd",
        "mlp_bias": False,
        "head_size": 12,
    },
    "rotary, half and partial, linear; rmsnorm with biased projections, learned scale": {
        "position": "rotary",
        "rope_size": 4,
        "rope_scaling": RopeScaling(kind="linear", factor=2.5),
        "norm": "rmsnorm",
        "norm_order": "post",
        "proj_bias": False,
        "attention_scale": 0.3,
        "head_bias": True,
    },
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "frozen with a cache": {"seq_len": 24, "batch_size": 2},
    "without a cache": {"kv_cache": False},
    "frozen without a cache": {"kv_cache": False, "seq_len": 24, "batch_size": 1},
    "frozen batch": {"batch_size": 2},
}
TARGETS = ("cpu", "portable")
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


def numpy_gpt(gpt: GPT) -> NumpyGPT:
    return NumpyGPT(gpt.config, {name: w.detach().double().numpy() for name, w in gpt.named_parameters()})


def relative_error(found: NDArray[Any], expected: Array) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="module")
def exported(make_gpt: GptMaker, export_unchecked: Exporter) -> Callable[..., tuple[GPT, Path]]:
    """Returns a model and its bundle; each is made once."""
    made: dict[str, tuple[GPT, Path]] = {}

    def export(config: str, target: str, **options: Any) -> tuple[GPT, Path]:
        key = repr((config, target, options))
        if key not in made:
            gpt = make_gpt(**CONFIGS[config])
            made[key] = gpt, export_unchecked(gpt, target=target, **options)
        return made[key]

    return export


Exported = Callable[..., tuple[GPT, Path]]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_model_in_float64_is_the_equations(make_gpt: GptMaker, config: str) -> None:
    gpt = make_gpt(**CONFIGS[config])
    ids = np.random.default_rng(1).integers(0, gpt.config.vocab_size, 40).tolist()
    expected = numpy_gpt(gpt).logits(ids)
    with torch.no_grad():
        found = copy.deepcopy(gpt).double()(torch.tensor([ids]))[0][0].numpy()
    assert relative_error(found, expected) < 1e-12


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("config", CONFIGS)
def test_every_configuration_passes_the_gate(exported: Exported, config: str, target: str) -> None:
    gpt, bundle = exported(config, target)
    report = run_gate(bundle, GptReference(gpt), level="quick")
    assert report.passed, report.summary()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("config", CONFIGS)
def test_logits_are_those_of_the_equations(exported: Exported, config: str, target: str) -> None:
    gpt, bundle = exported(config, target)
    ids = np.random.default_rng(1).integers(0, gpt.config.vocab_size, 40).tolist()
    found = OnnxGPT.load(bundle, threads=1).logits([ids])[0]
    assert relative_error(found, numpy_gpt(gpt).logits(ids)) < 3e-6


@pytest.mark.parametrize("target", TARGETS)
def test_greedy_tokens_are_those_of_the_equations(exported: Exported, target: str) -> None:
    gpt, bundle = exported("grouped heads, no biases", target)
    oracle, ids = numpy_gpt(gpt), [5, 6, 7]
    found = (
        OnnxGPT.load(bundle, threads=1).generate([ids], 20, Sampling(temperature=0.0), ignore_eos=True)[0].ids
    )
    for token in found:
        logits = oracle.logits(ids)[-1]
        assert logits.max() - logits[token] < 1e-5
        ids = [*ids, token]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_reference_evaluator_agrees_on_the_portable_graph(exported: Exported, config: str) -> None:
    gpt, folder = exported(config, "portable")
    bundle = open_bundle(folder)
    evaluator = ReferenceEvaluator(onnx.load(bundle.graph_path("model")))
    model = bundle.manifest.model
    empty = np.zeros((2, model.n_kv_head, 0, model.cache_head_size), np.float32)
    ids = np.random.default_rng(2).integers(0, model.vocab_size, (2, 9))
    feeds: dict[str, NDArray[Any]] = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.tile(np.arange(9), (2, 1)),
        "num_logits_to_keep": np.zeros(1, np.int64),
    }
    for layer in range(model.n_layer):
        feeds |= {f"past_key_values.{layer}.key": empty, f"past_key_values.{layer}.value": empty}
    found = np.asarray(evaluator.run(None, feeds)[0])  # type: ignore[index]  # a list, though typed otherwise
    expected = np.stack([numpy_gpt(gpt).logits(row.tolist()) for row in ids])
    assert relative_error(found, expected) < 3e-6


FROZEN_KINDS = [
    ("rotary, interleaved and partial, as GPT-J: geglu, heads of 12, scaled by layer", "cpu"),
    ("rotary, half, as Llama: rmsnorm, swiglu, grouped heads, no biases", "portable"),
    ("alibi, six heads, silu", "cpu"),
]


@pytest.mark.parametrize(("config", "target"), FROZEN_KINDS)
def test_frozen_lengths_pass_the_gate_with_positions_of_every_kind(
    exported: Exported, config: str, target: str
) -> None:
    gpt, bundle = exported(config, target, **LAYOUTS["frozen with a cache"])
    report = run_gate(bundle, GptReference(gpt), level="quick")
    assert report.passed, report.summary()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_passes_the_gate(exported: Exported, layout: str, target: str) -> None:
    config = "heads of 12, narrower than the stream, scaled embeddings"
    gpt, bundle = exported(config, target, **LAYOUTS[layout])
    report = run_gate(bundle, GptReference(gpt), level="quick")
    assert report.passed, report.summary()
    assert {"lengths", "greedy"} <= {row.group for row in report.rows}
