"""Every kind of model that GPTConfig describes, every layout: exported, run and compared.

Three oracles that share no code: the gate (float64 PyTorch), a forward pass in float64 numpy written from
the equations, and the ONNX reference evaluator on the portable graph.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from gpt_onnx.bundle import open_bundle
from gpt_onnx.export.gate import GptReference, run_gate
from gpt_onnx.model import GPT
from gpt_onnx.rope import RopeScaling
from gpt_onnx.runtime import OnnxGPT, Sampling

Array = NDArray[np.float64]
GptMaker = Callable[..., GPT]
Exporter = Callable[..., Path]
NumpyMaker = Callable[[GPT], Callable[[list[int]], Array]]

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


@pytest.fixture(scope="module")
def numpy_gpt() -> NumpyMaker:
    """Makes of a GPT the equations in float64 NumPy: ids (S) -> logits (S, V)."""
    spec = importlib.util.spec_from_file_location("numpy_gpt", Path(__file__).with_name("numpy_gpt.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def make(gpt: GPT) -> Callable[[list[int]], Array]:
        weights = {name: weight.detach().double().numpy() for name, weight in gpt.named_parameters()}
        logits: Callable[[list[int]], Array] = module.NumpyGPT(gpt.config, weights).logits
        return logits

    return make


Exported = Callable[..., tuple[GPT, Path]]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_model_in_float64_is_the_equations(
    make_gpt: GptMaker, config: str, numpy_gpt: NumpyMaker
) -> None:
    gpt = make_gpt(**CONFIGS[config])
    ids = np.random.default_rng(1).integers(0, gpt.config.vocab_size, 40).tolist()
    expected = numpy_gpt(gpt)(ids)
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
def test_logits_are_those_of_the_equations(
    exported: Exported, config: str, target: str, numpy_gpt: NumpyMaker
) -> None:
    gpt, bundle = exported(config, target)
    ids = np.random.default_rng(1).integers(0, gpt.config.vocab_size, 40).tolist()
    found = OnnxGPT.load(bundle, threads=1).logits([ids])[0]
    assert relative_error(found, numpy_gpt(gpt)(ids)) < 3e-6


@pytest.mark.parametrize("target", TARGETS)
def test_greedy_tokens_are_those_of_the_equations(
    exported: Exported, target: str, numpy_gpt: NumpyMaker
) -> None:
    gpt, bundle = exported("grouped heads, no biases", target)
    ids = [5, 6, 7]
    found = (
        OnnxGPT.load(bundle, threads=1).generate([ids], 20, Sampling(temperature=0.0), ignore_eos=True)[0].ids
    )
    for token in found:
        logits = numpy_gpt(gpt)(ids)[-1]
        assert logits.max() - logits[token] < 1e-5
        ids = [*ids, token]


@pytest.mark.parametrize("config", CONFIGS)
def test_the_reference_evaluator_agrees_on_the_portable_graph(
    exported: Exported, config: str, numpy_gpt: NumpyMaker
) -> None:
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
    expected = np.stack([numpy_gpt(gpt)(row.tolist()) for row in ids])
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
