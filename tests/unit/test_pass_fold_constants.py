"""fold_constants: what depends on small constants alone is computed once, at export."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt_onnx.export.passes.fold_constants import SIZE_LIMIT, fold_constants
from gpt_onnx.export.passes.tidy import tidy

GRAPH = """(float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}> {
    c = Add(a, b)
    d = Mul(c, c)
    y = Add(x, d)
}"""
X = np.array([0.5, -2.0], np.float32)


def test_fires_for_each_node_that_is_known(parse: Any) -> None:
    assert fold_constants(parse(GRAPH)) == 2


def test_leaves_what_depends_on_inputs(parse: Any) -> None:
    model = parse(GRAPH)
    fold_constants(model)
    tidy(model)
    assert [node.op_type for node in model.graph if node.op_type != "Constant"] == ["Add"]


def test_computes_the_same(parse: Any, evaluate: Any) -> None:
    model = parse(GRAPH)
    before = evaluate(model, {"x": X})[0]
    fold_constants(model)
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], before)


def test_parameters_are_never_folded(parse: Any) -> None:
    assert fold_constants(parse(GRAPH, ("a",))) == 0


def test_a_table_is_not_folded(parse: Any) -> None:
    size = SIZE_LIMIT + 1
    text = f"(float[{size}] x) => (float[{size}] y) <int64[1] n = {{{size}}}> " + (
        "{ c = ConstantOfShape<value = float[1] {2}>(n)\n y = Add(x, c) }"
    )
    assert fold_constants(parse(text)) == 0
