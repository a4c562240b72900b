"""gemm_head: MatMul(x, Transpose(W)) [+ bias] -> Reshape(Gemm(Reshape(x), W [, bias]))."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.export.passes.gemm_head import gemm_head
from gpt_onnx.export.passes.tidy import tidy

TIED = """(float[B, S, 4] x) => (float[B, S, 6] logits) <float[6, 4] wte = {WTE}> {
    turned = Transpose<perm = [1, 0]>(wte)
    logits = MatMul(x, turned)
}"""
BIASED = """(float[B, S, 4] x) => (float[B, S, 6] logits)
    <float[6, 4] wte = {WTE}, float[6] b = {1, 2, 3, 4, 5, 6}> {
    turned = Transpose<perm = [1, 0]>(wte)
    product = MatMul(x, turned)
    logits = Add(b, product)
}"""
ZEROS = "{" + ", ".join("0" for _ in range(24)) + "}"
WEIGHTS = {
    "wte": np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32),
    "b": np.arange(6, dtype=np.float32),
}
X = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)


def _model(parse: Any, text: str, *parameters: str) -> Any:
    return parse(text.replace("{WTE}", ZEROS), ("wte", *parameters))


@pytest.mark.parametrize(("text", "parameters"), [(TIED, ()), (BIASED, ("b",))])
def test_fires_once(parse: Any, text: str, parameters: tuple[str, ...]) -> None:
    assert gemm_head(_model(parse, text, *parameters)) == 1


@pytest.mark.parametrize(("text", "parameters"), [(TIED, ()), (BIASED, ("b",))])
def test_leaves_one_gemm_on_the_weight_as_it_is(parse: Any, text: str, parameters: tuple[str, ...]) -> None:
    model = _model(parse, text, *parameters)
    gemm_head(model)
    tidy(model)
    assert [node.op_type for node in model.graph] == ["Reshape", "Gemm", "Shape", "Concat", "Reshape"]
    gemm = next(node for node in model.graph if node.op_type == "Gemm")
    assert [value.name for value in gemm.inputs[1:]] == ["wte", *parameters]
    assert gemm.attributes["transB"].as_int() == 1
    assert model.graph.outputs[0].name == "logits"
    assert str(model.graph.outputs[0].shape) == "[B,S,6]"


@pytest.mark.parametrize(("text", "parameters"), [(TIED, ()), (BIASED, ("b",))])
def test_computes_the_same(parse: Any, evaluate: Any, text: str, parameters: tuple[str, ...]) -> None:
    model = _model(parse, text, *parameters)
    before = evaluate(model, {"x": X}, WEIGHTS)[0]
    gemm_head(model)
    tidy(model)
    after = evaluate(model, {"x": X}, WEIGHTS)[0]
    assert after.shape == (2, 3, 6)
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)


DECLINED = {
    "a weight that is no parameter": """(float[B, S, 4] x, float[6, 4] w) => (float[B, S, 6] logits) {
        turned = Transpose<perm = [1, 0]>(w)
        logits = MatMul(x, turned)
    }""",
    "a product that no transpose precedes": """(float[B, S, 6] x) => (float[B, S, 4] logits)
        <float[6, 4] wte = {WTE}> { logits = MatMul(x, wte) }""",
    "axes that are not swapped": """(float[B, S, 6] x) => (float[B, S, 4] logits) <float[6, 4] wte = {WTE}> {
        turned = Transpose<perm = [0, 1]>(wte)
        logits = MatMul(x, turned)
    }""",
    "a bias of another shape": """(float[B, S, 4] x) => (float[B, S, 6] logits)
        <float[6, 4] wte = {WTE}, float[1, 1, 6] b = {1, 2, 3, 4, 5, 6}> {
        turned = Transpose<perm = [1, 0]>(wte)
        product = MatMul(x, turned)
        logits = Add(product, b)
    }""",
    "a sum of two products": """(float[B, S, 4] x) => (float[B, S, 6] logits) <float[6, 4] wte = {WTE}> {
        turned = Transpose<perm = [1, 0]>(wte)
        one = MatMul(x, turned)
        two = MatMul(x, turned)
        logits = Add(one, two)
    }""",
    "logits that no product makes": """(float[B, S, 4] x) => (float[B, S, 4] logits) { logits = Tanh(x) }""",
}


@pytest.mark.parametrize("guard", DECLINED)
def test_declines(parse: Any, guard: str) -> None:
    text = DECLINED[guard]
    model = _model(parse, text) if "{WTE}" in text else parse(text)
    before = [node.op_type for node in model.graph]
    assert gemm_head(model) == 0
    assert [node.op_type for node in model.graph] == before
