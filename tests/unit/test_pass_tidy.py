"""tidy: identities, repeated and unused nodes go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.export.passes.tidy import tidy

X = np.array([0.5, -2.0], np.float32)
CASES = {
    "an identity": ("{ a = Identity(x)\n y = Tanh(a) }", ["Tanh"]),
    "a repeated node": ("{ a = Tanh(x)\n b = Tanh(x)\n y = Add(a, b) }", ["Tanh", "Add"]),
    "an unused node": ("{ a = Sin(x)\n y = Tanh(x) }", ["Tanh"]),
    "what repetition leaves unused": (
        "{ a = Tanh(x)\n b = Tanh(x)\n c = Sin(b)\n d = Sin(a)\n y = Add(c, d) }",
        ["Tanh", "Sin", "Add"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_removes(parse: Any, evaluate: Any, case: str) -> None:
    body, left = CASES[case]
    model = parse(f"(float[2] x) => (float[2] y) {body}")
    count, before = len(model.graph), evaluate(model, {"x": X})[0]
    assert tidy(model) == count - len(left)
    assert [node.op_type for node in model.graph] == left
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], before)


def test_nodes_of_other_attributes_are_not_merged(parse: Any) -> None:
    model = parse(
        "(float[2, 2] x) => (float[2, 2] y) "
        "{ a = Softmax<axis = 0>(x)\n b = Softmax<axis = 1>(x)\n y = Add(a, b) }"
    )
    assert tidy(model) == 0


def test_an_output_keeps_its_name(parse: Any) -> None:
    model = parse("(float[2] x) => (float[2] y) { a = Tanh(x)\n y = Identity(a) }")
    tidy(model)
    assert [value.name for value in model.graph.outputs] == ["y"]


def test_there_may_be_nothing_to_do(parse: Any) -> None:
    assert tidy(parse("(float[2] x) => (float[2] y) { y = Tanh(x) }")) == 0
