"""transpose_weights: MatMul(x, Transpose(W)) -> MatMul(x, W stored transposed), where nothing else uses W."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.export.passes import STORED_TRANSPOSED
from gpt_onnx.export.passes.transpose_weights import transpose_weights

GRAPH = """(float[B, 3] x) => (float[B, 2] y) <float[2, 3] w = {0, 0, 0, 0, 0, 0}> {
    turned = Transpose<perm = [1, 0]>(w)
    y = MatMul(x, turned)
}"""
W = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
X = np.array([[1, -1, 2], [0.5, 3, 1]], np.float32)


def test_fires_for_each_weight(parse: Any) -> None:
    assert transpose_weights(parse(GRAPH, ("w",))) == 1


def test_leaves_the_product_alone_and_marks_the_weight(parse: Any) -> None:
    model = parse(GRAPH, ("w",))
    transpose_weights(model)
    assert [node.op_type for node in model.graph] == ["MatMul"]
    weight = model.graph.initializers["w"]
    assert weight.shape == (3, 2)
    assert weight.meta[STORED_TRANSPOSED]


def test_a_transpose_without_perm_swaps_too(parse: Any) -> None:
    assert transpose_weights(parse(GRAPH.replace("<perm = [1, 0]>", ""), ("w",))) == 1


def test_computes_the_same_with_the_weight_stored_transposed(parse: Any, evaluate: Any) -> None:
    model = parse(GRAPH, ("w",))
    before = evaluate(model, {"x": X}, {"w": W})[0]
    transpose_weights(model)
    np.testing.assert_array_equal(evaluate(model, {"x": X}, {"w": W})[0], before)
    np.testing.assert_array_equal(before, X @ W.T)


DECLINED = {
    "a weight that is used elsewhere": """(float[B, 3] x, int64[S] ids) => (float[B, 2] y, float[S, 3] z)
        <float[2, 3] w = {0, 0, 0, 0, 0, 0}> {
        turned = Transpose<perm = [1, 0]>(w)
        y = MatMul(x, turned)
        z = Gather(w, ids)
    }""",
    "axes that are not swapped": GRAPH.replace("[1, 0]", "[0, 1]").replace("[B, 3] x", "[B, 2] x"),
}


@pytest.mark.parametrize("guard", DECLINED)
def test_declines(parse: Any, guard: str) -> None:
    model = parse(DECLINED[guard], ("w",))
    before = [node.op_type for node in model.graph]
    assert transpose_weights(model) == 0
    assert [node.op_type for node in model.graph] == before
    assert model.graph.initializers["w"].shape == (2, 3)


def test_a_constant_is_no_parameter(parse: Any) -> None:
    assert transpose_weights(parse(GRAPH)) == 0
