"""constant_ranges: Range of constants -> the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpt_onnx.export.passes.constant_ranges import constant_ranges

KNOWN = """(int64[B] x) => (int64[B, 2000] y)
    <int64 start = {3}, int64 limit = {2003}, int64 delta = {1}, int64[1] axis = {1}> {
    numbers = Range(start, limit, delta)
    column = Unsqueeze(x, axis)
    y = Add(column, numbers)
}"""
COMPUTED = """(int64 limit) => (int64[N] y) <int64 start = {0}, int64 delta = {1}> {
    y = Range(start, limit, delta)
}"""


def test_fires_and_computes_the_same(parse: Any, evaluate: Any) -> None:
    model = parse(KNOWN)
    assert constant_ranges(model) == 1
    assert [node.op_type for node in model.graph] == ["Unsqueeze", "Add"]
    (found,) = evaluate(model, {"x": np.array([0, 10])})
    np.testing.assert_array_equal(found, np.arange(3, 2003) + np.array([[0], [10]]))


def test_a_computed_limit_is_left_alone(parse: Any) -> None:
    model = parse(COMPUTED)
    assert constant_ranges(model) == 0
    assert [node.op_type for node in model.graph] == ["Range"]
