"""quantize_weights: products and lookups of a weight read integers, in either form of the operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpt_onnx.errors import ConfigError
from gpt_onnx.export.passes import FORMS, QuantizeWeights, fused, standard
from gpt_onnx.export.passes.tidy import tidy
from gpt_onnx.export.quantize.choice import Choice
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.weights import QuantizedWeights
from gpt_onnx.export.weights import bind, collect_parameters, collect_parts, parts_in

V, D, F = 40, 32, 64
GRAPH = f"""(int64[B, S] input_ids) => (float[B, S, {V}] logits)
    <float[{V}, {D}] wte = {{0}}, float[{F}, {D}] fc = {{0}}, float[{F}] fc_bias = {{0}},
     float[{D}, {F}] proj = {{0}}> {{
    x = Gather(wte, input_ids)
    fc_t = Transpose<perm = [1, 0]>(fc)
    wide = MatMul(x, fc_t)
    biased = Add(wide, fc_bias)
    proj_t = Transpose<perm = [1, 0]>(proj)
    back = MatMul(biased, proj_t)
    wte_t = Transpose<perm = [1, 0]>(wte)
    logits = MatMul(back, wte_t)
}}"""
random = np.random.default_rng(0)
WEIGHTS = {
    "wte": random.standard_normal((V, D)).astype(np.float32),
    "fc": random.standard_normal((F, D)).astype(np.float32),
    "fc_bias": random.standard_normal(F).astype(np.float32),
    "proj": random.standard_normal((D, F)).astype(np.float32),
}
IDS = random.integers(0, V, (2, 3))
MATRICES = ("wte", "fc", "proj")
Run = Callable[[Any], Any]


def _choice(**changes: Any) -> Choice:
    values = {"bits": 4, "head_bits": 4, "symmetric": False, "block_sizes": (16,), "accuracy_level": 0}
    return Choice(**{**values, "quantizer": "rtn", **changes})


def _zeros(text: str) -> str:
    """Give the initializers of a graph as many zeros as they have elements: parse wants them all."""
    for name, weight in WEIGHTS.items():
        text = text.replace(f"{name} = {{0}}", f"{name} = {{{', '.join(['0'] * weight.size)}}}")
    return text


def _model(parse: Any, text: str = GRAPH) -> Any:
    return parse(_zeros(text), tuple(name for name in WEIGHTS if f"{name} = {{0}}" in text))


def _bound(model: Any, tmp_path: Any) -> Any:
    """Write a model with its weights, and return ONNX Runtime's session of it."""
    import onnx_ir as ir
    import onnxruntime as ort

    names = {name: name for name in WEIGHTS}
    weights = collect_parameters([model], names, WEIGHTS.__getitem__)
    weights += collect_parts(parts_in([model]), names, QuantizedWeights(WEIGHTS.__getitem__, "rtn"))
    bind(weights, tmp_path / "model.onnx_data", lambda done, total: None)
    model.opset_imports["com.microsoft"] = 1
    ir.save(model, tmp_path / "model.onnx")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    return ort.InferenceSession(str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"])


def _truth(grid: Grid) -> Any:
    """What the graph computes with the weights that the integers mean, in float64."""
    from gpt_onnx.export.quantize.quantizers import quantize

    w = {name: quantize("rtn", WEIGHTS[name], grid).dequantized().astype(np.float64) for name in MATRICES}
    wide = w["wte"][IDS] @ w["fc"].T + WEIGHTS["fc_bias"]
    return wide @ w["proj"].T @ w["wte"].T


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_fires_once_for_each_product_and_lookup(parse: Any, form: Any) -> None:
    assert QuantizeWeights(_choice(), form)(_model(parse)) == 4


def test_a_tied_table_is_stored_once_and_biases_are_in_the_products(parse: Any) -> None:
    model = _model(parse)
    QuantizeWeights(_choice(), fused)(model)
    tidy(model)
    ops = [node.op_type for node in model.graph]
    assert ops == ["GatherBlockQuantized", "MatMulNBits", "MatMulNBits", "Reshape", "MatMulNBits"]
    lookup, first, _, blocks, _ = model.graph
    assert lookup.inputs[0] is blocks.inputs[0] is model.graph.initializers["wte.packed"]
    assert str(lookup.inputs[0].shape) == f"[{V},{D // 2}]"
    assert first.inputs[5].name == "fc_bias"
    assert model.graph.outputs[0].name == "logits"
    assert {"wte", "fc", "proj"}.isdisjoint(model.graph.initializers)


@pytest.mark.parametrize("accuracy_level", [0, 4])
def test_the_accuracy_level_is_written(parse: Any, accuracy_level: int) -> None:
    model = _model(parse)
    QuantizeWeights(_choice(accuracy_level=accuracy_level), fused)(model)
    products = [node for node in model.graph if node.op_type == "MatMulNBits"]
    assert {node.attributes["accuracy_level"].as_int() for node in products} == {accuracy_level}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_computes_what_the_integers_mean(
    parse: Any, tmp_path: Any, form: Any, bits: int, symmetric: bool
) -> None:
    model, choice = _model(parse), _choice(bits=bits, head_bits=bits, symmetric=symmetric)
    QuantizeWeights(choice, form)(model)
    tidy(model)
    found = _bound(model, tmp_path).run(None, {"input_ids": IDS})[0]
    truth = _truth(Grid(bits=bits, block_size=16, symmetric=symmetric))
    np.testing.assert_allclose(found, truth, rtol=0, atol=2e-6 * np.abs(truth).max())


def test_standard_operators_are_standard(parse: Any) -> None:
    model = _model(parse)
    QuantizeWeights(_choice(), standard)(model)
    tidy(model)
    assert {node.domain for node in model.graph} == {""}
    assert sum(node.op_type == "DequantizeLinear" for node in model.graph) == 3


@pytest.mark.parametrize("symmetric", [False, True])
def test_lookups_of_bytes_are_standard_and_share_the_head_s_table(parse: Any, symmetric: bool) -> None:
    model = _model(parse)
    QuantizeWeights(_choice(head_bits=8, symmetric=symmetric), FORMS["bytes"])(model)
    tidy(model)
    assert [node.op_type for node in model.graph if node.domain] == ["MatMulNBits"] * 3
    table = model.graph.initializers["wte.packed"]
    assert sorted(use.node.op_type for use in table.uses()) == ["Gather", "MatMulNBits"]
    assert str(table.shape) == f"[{V},2,16]"
    assert ("wte.zero_points" in model.graph.initializers) is not symmetric


def test_lookups_of_4_bits_stay_fused_in_the_form_of_bytes(parse: Any) -> None:
    model = _model(parse)
    QuantizeWeights(_choice(head_bits=4), FORMS["bytes"])(model)
    assert [node.op_type for node in model.graph].count("GatherBlockQuantized") == 1


def test_the_head_can_be_finer_than_the_layers(parse: Any) -> None:
    model = _model(parse)
    QuantizeWeights(_choice(head_bits=8), fused)(model)
    tidy(model)
    bits = [node.attributes["bits"].as_int() for node in model.graph if "bits" in node.attributes]
    assert bits == [8, 4, 4, 8]


def test_the_head_can_stay_float(parse: Any) -> None:
    model = _model(parse)
    assert QuantizeWeights(_choice(head_bits=None), fused)(model) == 2
    tidy(model)
    assert next(node.op_type for node in model.graph) == "Gather"
    assert "wte" in model.graph.initializers


DECLINED = {
    "a weight that something else reads": GRAPH.replace(
        "biased = Add(wide, fc_bias)", "s = ReduceSum(fc)\n biased = Add(wide, s)"
    ),
    "a product from the left": f"""(float[{F}, {D}] x) => (float[{F}, {D}] logits)
        <float[{F}, {D}] fc = {{0}}> {{
        t = Transpose<perm = [1, 0]>(fc)
        y = MatMul(t, x)
        logits = MatMul(fc, y)
    }}""",
    "positions": f"""(int64[B, S] position_ids) => (float[B, S, {D}] logits)
        <float[{V}, {D}] wte = {{0}}> {{ logits = Gather(wte, position_ids) }}""",
}


@pytest.mark.parametrize(
    ("why", "name"),
    [("a weight that something else reads", "fc"), ("a product from the left", "fc"), ("positions", "wte")],
)
def test_declines(parse: Any, why: str, name: str) -> None:
    model = _model(parse, DECLINED[why])
    QuantizeWeights(_choice(), fused)(model)
    tidy(model)
    assert name in model.graph.initializers


def test_a_bias_that_is_read_before_the_sum_stays_a_node(parse: Any) -> None:
    text = GRAPH.replace(
        "back = MatMul(biased, proj_t)", "both = Mul(biased, wide)\n back = MatMul(both, proj_t)"
    )
    model = _model(parse, text)
    QuantizeWeights(_choice(), fused)(model)
    tidy(model)
    assert [node.op_type for node in model.graph].count("Add") == 1


def test_the_largest_block_that_divides_every_weight_is_taken(parse: Any) -> None:
    rewrite = QuantizeWeights(_choice(block_sizes=(128, 64, 32, 16)), fused)
    rewrite(_model(parse))
    assert rewrite.block_size == 32


def test_a_block_that_divides_no_weight_is_refused_with_those_that_do(parse: Any) -> None:
    with pytest.raises(
        ConfigError,
        match=r"^wte has 32 inputs, which blocks of 64 do not divide; choose --block-size 16 or 32\.$",
    ):
        QuantizeWeights(_choice(block_sizes=(64,)), fused)(_model(parse))


def test_a_weight_of_two_products_is_stored_once(parse: Any, tmp_path: Any) -> None:
    text = GRAPH.replace(
        "biased = Add(wide, fc_bias)",
        "again = MatMul(x, fc_t)\n both = Mul(wide, again)\n biased = Add(both, fc_bias)",
    )
    for form in (fused, standard):
        model = _model(parse, text)
        QuantizeWeights(_choice(), form)(model)
        names = [node.name for node in model.graph if node.name]
        assert len(names) == len(set(names))
        assert (
            sum(name.startswith("fc.") and name.endswith("packed") for name in model.graph.initializers) <= 1
        )
