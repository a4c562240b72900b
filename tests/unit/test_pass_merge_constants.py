"""merge_constants: Constant nodes become initializers, and equal initializers one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.export.passes.merge_constants import merge_constants

GRAPH = """(float[2] x) => (float[2] y)
    <float[2] a = {1, 2}, float[2] b = {1, 2}, float[2] c = {1, 3}> {
    d = Constant<value = float[2] {1, 2}>()
    e = Constant<value_floats = [1.0, 2.0]>()
    p = Add(x, a)
    q = Mul(p, b)
    r = Add(q, c)
    s = Mul(r, d)
    y = Add(s, e)
}"""
X = np.array([0.5, -2.0], np.float32)


def test_fires_once_for_each_repetition(parse: Any) -> None:
    assert merge_constants(parse(GRAPH)) == 3


def test_leaves_each_constant_once_and_no_constant_node(parse: Any) -> None:
    model = parse(GRAPH)
    merge_constants(model)
    assert [node.op_type for node in model.graph] == ["Add", "Mul", "Add", "Mul", "Add"]
    assert list(model.graph.initializers) == ["a", "c"]


def test_computes_the_same(parse: Any, evaluate: Any) -> None:
    model = parse(GRAPH)
    before = evaluate(model, {"x": X})[0]
    merge_constants(model)
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], before)


DECLINED = {
    "another dtype": """<float[1] a = {0}, int32[1] b = {0}> {
        p = Cast<to = 1>(b)
        q = Add(x, a)
        y = Add(p, q)
    }""",
    "another shape": """<float[1] a = {1}, float[1, 1] b = {1}> {
        p = Add(x, b)
        q = Add(p, a)
        y = Squeeze(q)
    }""",
    "zeros of another sign": "<float[1] a = {0.0}, float[1] b = {-0.0}> { p = Add(x, a)\n y = Add(p, b) }",
}


@pytest.mark.parametrize("guard", DECLINED)
def test_declines(parse: Any, guard: str) -> None:
    model = parse(f"(float[2] x) => (float[2] y) {DECLINED[guard]}")
    assert merge_constants(model) == 0
    assert list(model.graph.initializers) == ["a", "b"]


def test_parameters_are_never_merged(parse: Any) -> None:
    model = parse(GRAPH, ("a", "b"))
    assert merge_constants(model) == 1
    assert list(model.graph.initializers) == ["a", "b", "c", "d"]


def test_an_input_with_a_default_stays(parse: Any) -> None:
    model = parse(
        "(float[2] x, float[2] a) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {1, 2}> "
        "{ p = Add(x, a)\n y = Mul(p, b) }"
    )
    assert merge_constants(model) == 0
