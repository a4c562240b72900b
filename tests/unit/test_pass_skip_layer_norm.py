"""skip_layer_norm: a norm and the sum before it are one node, which also gives the sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.export.passes.skip_layer_norm import skip_layer_norm
from gpt_onnx.export.passes.tidy import tidy

D = 8
ONES = "{" + ", ".join(["0"] * D) + "}"
PARAMETERS = f"<float[{D}] w = {ONES}, float[{D}] b = {ONES}, float[{D}] c = {ONES}>"
random = np.random.default_rng(0)
WEIGHTS = {name: random.standard_normal(D).astype(np.float32) for name in "wbc"}
FEEDS = {name: random.standard_normal((2, 3, D)).astype(np.float32) for name in ("x", "f")}
HEAD = (
    f"(float[B, S, {D}] x, float[B, S, {D}] f) => (float[B, S, {D}] y, float[B, S, {D}] stream) {PARAMETERS}"
)
LAYER_NORM = f"""{HEAD} {{
    summed = Add(x, f)
    stream = Tanh(summed)
    y = LayerNormalization<epsilon = 0.001, axis = -1>(summed, w, b)
}}"""
BIASED = f"""{HEAD} {{
    biased = Add(f, c)
    summed = Add(x, biased)
    stream = Tanh(summed)
    y = LayerNormalization<epsilon = 0.001, axis = -1>(summed, w, b)
}}"""
RMS_NORM = f"""{HEAD} {{
    biased = Add(c, f)
    summed = Add(biased, x)
    stream = Tanh(summed)
    two = Constant<value_float = 2.0>()
    eps = Constant<value_float = 0.001>()
    axis = Constant<value_ints = [-1]>()
    square = Pow(summed, two)
    mean = ReduceMean<keepdims = 1>(square, axis)
    shifted = Add(mean, eps)
    root = Sqrt(shifted)
    unit = Div(summed, root)
    y = Mul(unit, w)
}}"""
GRAPHS = {"layer norm": LAYER_NORM, "with a bias": BIASED, "rms norm": RMS_NORM}


def _model(parse: Any, text: str) -> Any:
    from onnx_ir.passes import common

    model = parse(text)
    common.ShapeInferencePass()(model)  # a trace has shapes everywhere
    for value in model.graph.initializers.values():
        value.const_value = None
    return model


def _run(model: Any) -> list[Any]:
    """Run on ONNX Runtime as written, the parameters bound to WEIGHTS."""
    import onnx_ir as ir
    import onnxruntime as ort

    for name, value in model.graph.initializers.items():
        if value.const_value is None:
            value.const_value = ir.tensor(WEIGHTS[name])
    model.opset_imports["com.microsoft"] = 1
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, FEEDS)
    return found


def _truth(name: str) -> tuple[Any, Any]:
    """What the graph computes, in float64."""
    wide = {key: value.astype(np.float64) for key, value in {**WEIGHTS, **FEEDS}.items()}
    summed = wide["x"] + wide["f"] + (0 if name == "layer norm" else wide["c"])
    if name == "rms norm":
        unit = summed / np.sqrt(np.mean(summed**2, axis=-1, keepdims=True) + 1e-3)
        return unit * wide["w"], np.tanh(summed)
    centred = summed - summed.mean(axis=-1, keepdims=True)
    unit = centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-3)
    return unit * wide["w"] + wide["b"], np.tanh(summed)


@pytest.mark.parametrize("name", GRAPHS)
def test_fires_once(parse: Any, name: str) -> None:
    assert skip_layer_norm(_model(parse, GRAPHS[name])) == 1


@pytest.mark.parametrize("name", GRAPHS)
def test_leaves_one_node_and_the_users_of_the_sum(parse: Any, name: str) -> None:
    model = _model(parse, GRAPHS[name])
    skip_layer_norm(model)
    tidy(model)
    kinds = {"rms norm": "SkipSimplifiedLayerNormalization"}
    ops = [node.op_type for node in model.graph if node.op_type != "Constant"]
    assert ops == [kinds.get(name, "SkipLayerNormalization"), "Tanh"]
    fused = next(node for node in model.graph if node.op_type.startswith("Skip"))
    assert fused.attributes["epsilon"].as_float() == pytest.approx(1e-3)
    assert [value.name for value in model.graph.outputs] == ["y", "stream"]


@pytest.mark.parametrize("name", GRAPHS)
def test_computes_the_same(parse: Any, name: str) -> None:
    model = _model(parse, GRAPHS[name])
    skip_layer_norm(model)
    tidy(model)
    for found, truth in zip(_run(model), _truth(name), strict=True):
        np.testing.assert_allclose(found, truth, rtol=0, atol=2e-6)


def test_a_sum_that_nothing_else_reads_is_no_output(parse: Any) -> None:
    text = LAYER_NORM.replace("stream = Tanh(summed)", "stream = Tanh(x)")
    model = _model(parse, text)
    skip_layer_norm(model)
    fused = next(node for node in model.graph if node.op_type.startswith("Skip"))
    assert [output.name for output in fused.outputs] == ["y", "", "", ""]


DECLINED = {
    "no sum before it": LAYER_NORM.replace("(summed, w, b)", "(x, w, b)"),
    "shapes that differ": LAYER_NORM.replace(f"float[B, S, {D}] f", f"float[1, 1, {D}] f"),
    "a sum with a parameter": LAYER_NORM.replace("Add(x, f)", "Add(x, c)"),
    "a root of something else": RMS_NORM.replace("Pow(summed, two)", "Pow(x, two)"),
    "another power": RMS_NORM.replace("value_float = 2.0", "value_float = 3.0"),
}


@pytest.mark.parametrize("why", sorted(DECLINED))
def test_declines(parse: Any, why: str) -> None:
    model = _model(parse, DECLINED[why])
    before = [node.op_type for node in model.graph]
    assert skip_layer_norm(model) == 0
    assert [node.op_type for node in model.graph] == before


def test_declines_a_norm_over_more_than_the_last_dim(parse: Any) -> None:
    text = LAYER_NORM.replace("axis = -1", "axis = 1").replace(
        f"float[{D}] w = {ONES}", f"float[1, {D}] w = {ONES}"
    )
    assert skip_layer_norm(_model(parse, text)) == 0
