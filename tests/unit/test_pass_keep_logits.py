"""keep_logits: the head sees the last num_logits_to_keep positions alone; 0, the default, keeps all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpt_onnx.errors import ExportError
from gpt_onnx.export.passes import KEEP
from gpt_onnx.export.passes.keep_logits import keep_logits

GRAPH = """(float[B, S, 2] x) => (float[B, S, 3] logits) <float[2, 3] w = {1, 2, 3, 4, 5, 6}> {
    logits = MatMul(x, w)
}"""
X = np.arange(20, dtype=np.float32).reshape(2, 5, 2)


def test_fires_once(parse: Any) -> None:
    assert keep_logits(parse(GRAPH)) == 1


def test_adds_an_input_with_a_default_and_one_slice(parse: Any) -> None:
    model = parse(GRAPH)
    keep_logits(model)
    assert [node.op_type for node in model.graph] == ["Neg", "Slice", "MatMul"]
    assert [value.name for value in model.graph.inputs] == ["x", KEEP]
    default = model.graph.initializers[KEEP].const_value
    assert default.dtype.name == "INT64"
    assert default.numpy().tolist() == [0]


def test_default_computes_the_same(parse: Any, evaluate: Any) -> None:
    model = parse(GRAPH)
    before = evaluate(model, {"x": X})[0]
    keep_logits(model)
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], before)


@pytest.mark.parametrize("keep", [1, 2, 5, 6, 2**40])
def test_keeps_the_last_positions(parse: Any, evaluate: Any, keep: int) -> None:
    model = parse(GRAPH)
    before = evaluate(model, {"x": X})[0]
    keep_logits(model)
    kept = evaluate(model, {"x": X, KEEP: np.array([keep])})[0]
    np.testing.assert_array_equal(kept, before[:, max(0, 5 - keep) :])


def test_logits_that_no_product_makes_are_an_error(parse: Any) -> None:
    model = parse("(float[B, S, 2] x) => (float[B, S, 2] logits) { logits = Tanh(x) }")
    with pytest.raises(ExportError, match="do not come from a matrix product"):
        keep_logits(model)
