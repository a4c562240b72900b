"""static_reshapes: a target computed from shapes becomes a constant with 0 (copy) and one -1 (infer)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.export.passes.static_reshapes import reshape_target, static_reshapes
from gpt_onnx.export.passes.tidy import tidy

GRAPH = """(float[B, S, 6] x) => (float[B, S, 6] y)
    <int64[2] heads = {2, 3}, int64[1] width = {6}, float[B, S, 2, 3] split> {
    lead = Shape<start = 0, end = 2>(x)
    target = Concat<axis = 0>(lead, heads)
    split = Reshape<allowzero = 1>(x, target)
    again = Concat<axis = 0>(lead, width)
    y = Reshape(split, again)
}"""
X = np.arange(36, dtype=np.float32).reshape(2, 3, 6)


def test_fires_for_each_reshape(parse: Any) -> None:
    assert static_reshapes(parse(GRAPH)) == 2


def test_leaves_no_computed_shape(parse: Any) -> None:
    model = parse(GRAPH)
    static_reshapes(model)
    tidy(model)
    assert [node.op_type for node in model.graph] == ["Reshape", "Reshape"]
    targets = [node.inputs[1].const_value.numpy().tolist() for node in model.graph]
    assert targets == [[0, 0, 2, 3], [0, 0, 6]]
    assert all("allowzero" not in node.attributes for node in model.graph)


def test_computes_the_same(parse: Any, evaluate: Any) -> None:
    model = parse(GRAPH)
    before = evaluate(model, {"x": X})[0]
    static_reshapes(model)
    tidy(model)
    np.testing.assert_array_equal(evaluate(model, {"x": X})[0], before)


def test_a_target_that_is_constant_already_stays(parse: Any) -> None:
    model = parse(
        "(float[B, S, 6] x) => (float[B, S, 2, 3] y) <int64[4] t = {0, 0, 2, 3}> { y = Reshape(x, t) }"
    )
    assert static_reshapes(model) == 0


def test_a_reshape_of_unknown_dims_stays(parse: Any) -> None:
    model = parse("(float[B, S, 6] x, int64[2] t) => (y) { z = Reshape(x, t)\n y = Tanh(z) }")
    assert static_reshapes(model) == 0


@pytest.mark.parametrize(
    ("source", "result", "target"),
    [
        (["B", "S", 6], ["B", "S", 2, 3], [0, 0, 2, 3]),
        (["B", 2, "S", 3], ["B", "S", 6], [0, -1, 6]),
        (["B", "S", 4], ["B*S", 4], [-1, 4]),
        (["B", "S", 4], [1, "B", "S", 4], None),
        (["B", "S"], ["S", "B"], None),
        ([0, 4], [0, 2, 2], None),
        ([3, 4], [12], [12]),
    ],
)
def test_target(source: Any, result: Any, target: Any) -> None:
    assert reshape_target(source, result) == target


@given(st.data())
def test_a_target_gives_the_promised_shape_for_every_size(data: st.DataObject) -> None:
    """Numbers put for the names: numpy's own reshape must agree."""
    names: list[int | str] = data.draw(st.lists(st.sampled_from(["B", "S", 2, 3, 4]), min_size=1, max_size=4))
    order = data.draw(st.permutations(names))
    target = reshape_target(names, order)
    if target is None:
        return
    sizes = {name: data.draw(st.integers(1, 7)) for name in ("B", "S")}
    shape = [dim if isinstance(dim, int) else sizes[dim] for dim in names]
    wanted = [dim if isinstance(dim, int) else sizes[dim] for dim in order]
    meant = [shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    assert np.zeros(shape).reshape(meant).shape == tuple(wanted)
