"""half_products: products, weights and cache become float16; all else stays float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gpt_onnx.export.passes.half_products import half_products
from gpt_onnx.export.passes.tidy import tidy

LAYER = """(float[B, 4] x) => (float[B, 6] y)
    <float[4, 6] w = {WEIGHT}, float[6] b = {1, 2, 3, 4, 5, 6}> {
    product = MatMul(x, w)
    y = Add(product, b)
}"""
TABLE = """(int64[B] input_ids) => (float[B, 6] logits) <float[6, 4] wte = {WEIGHT}> {
    row = Gather<axis = 0>(wte, input_ids)
    seen = Tanh(row)
    logits = Gemm<transB = 1>(seen, wte)
}"""
CACHE = """(float[1, 2, 3, 4] q, float[1, 2, P, 4] "past_key_values.0.key", float[1, 2, 3, 4] k)
    => (float[1, 2, 3, T] y, float[1, 2, T, 4] "present.0.key") {
    "present.0.key" = Concat<axis = 2>("past_key_values.0.key", k)
    turned = Transpose<perm = [0, 1, 3, 2]>("present.0.key")
    y = MatMul(q, turned)
}"""
WEIGHT = "{" + ", ".join("0" for _ in range(24)) + "}"
VALUES = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def _halved(parse: Any, text: str, *parameters: str) -> Any:
    model = parse(text.replace("{WEIGHT}", WEIGHT), parameters)
    assert half_products(model) == 1
    tidy(model)
    return model


def _ops(model: Any) -> list[str]:
    return [node.op_type for node in model.graph]


def test_a_product_is_float16_and_its_bias_float32(parse: Any, evaluate: Any) -> None:
    model = _halved(parse, LAYER, "w", "b")
    assert _ops(model) == ["Cast", "MatMul", "Cast", "Add"]
    initializers = model.graph.initializers
    assert (initializers["w"].dtype, initializers["b"].dtype) == (ir.DataType.FLOAT16, ir.DataType.FLOAT)
    x, bias = (
        np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32),
        np.arange(6, dtype=np.float32),
    )
    (found,) = evaluate(model, {"x": x}, {"w": VALUES.astype(np.float16), "b": bias})
    exact = x.astype(np.float16).astype(np.float64) @ VALUES.astype(np.float16).astype(np.float64)
    product = (found - bias).astype(np.float64)
    assert np.abs(product - exact).max() <= np.abs(exact).max() * 2.0**-10
    np.testing.assert_array_equal(product.astype(np.float16), product)  # of float16, and no more than that


def test_rows_are_looked_up_before_they_are_widened_and_the_table_is_one(parse: Any) -> None:
    model = _halved(parse, TABLE, "wte")
    assert _ops(model) == ["Gather", "Cast", "Tanh", "Cast", "Gemm", "Cast"]
    assert [value.name for value in model.graph.initializers.values()] == ["wte"]
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT


def test_a_cache_is_never_widened(parse: Any) -> None:
    model = _halved(parse, CACHE)
    assert sorted(_ops(model)) == sorted(["Cast", "Concat", "Transpose", "Cast", "MatMul", "Cast"])
    concat = next(node for node in model.graph if node.op_type == "Concat")
    assert concat.inputs[0].name == "past_key_values.0.key"
    assert concat.outputs[0].name == "present.0.key"
    assert concat.outputs[0].is_graph_output()
    assert {value.dtype for value in (concat.inputs[0], concat.outputs[0])} == {ir.DataType.FLOAT16}


def test_a_sum_of_the_stream_stays_float32(parse: Any) -> None:
    model = parse("(float[B, 4] x, float[B, 4] z) => (float[B, 4] y) { y = Add(x, z) }")
    assert half_products(model) == 0
    assert _ops(model) == ["Add"]
    assert model.graph.outputs[0].dtype == ir.DataType.FLOAT
