"""lower_opset, and the rewrites that it is made of: the same numbers in older operators, or a refusal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from gpt_onnx.errors import ExportError
from gpt_onnx.export.passes.gelu_parts import gelu_parts
from gpt_onnx.export.passes.lower_opset import LowerOpset
from gpt_onnx.export.passes.reduce_axes import reduce_axes
from gpt_onnx.export.passes.split_sizes import sizes_of, split_sizes

GELU = """(float[B, 4] x) => (float[B, 4] y) { y = Gelu<approximate = "FORM">(x) }"""
MEAN = """(float[B, 4] x) => (float[B, 1] y) <int64[1] axes = {-1}> {
    y = ReduceMean<keepdims = 1, noop_with_empty_axes = 0>(x, axes)
}"""
SPLIT = """(float[B, 5] x) => (float[B, 3] first, float[B, 2] second) {
    first, second = Split<axis = 1, num_outputs = 2>(x)
}"""
EQUAL = """(float[B, 4] x) => (float[S, 4] first, float[S, 4] second) {
    first, second = Split<axis = 0, num_outputs = 2>(x)
}"""
X = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32) * 3


def _gelu(x: float, form: str) -> float:
    """The functions as their papers have them."""
    if form == "none":
        return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _at(model: Any, opset: int) -> Any:
    model.opset_imports[""] = opset
    model.ir_version = 8
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    return model


@pytest.mark.parametrize("form", ["none", "tanh"])
def test_gelu_in_parts_is_the_function_of_its_name(parse: Any, evaluate: Any, form: str) -> None:
    model = parse(GELU.replace("FORM", form))
    assert gelu_parts(model) == 1
    assert "Gelu" not in {node.op_type for node in model.graph}
    (found,) = evaluate(_at(model, 17), {"x": X})
    expected = np.vectorize(lambda value: _gelu(float(value), form))(X)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_axes_become_an_attribute(parse: Any, evaluate: Any) -> None:
    model = parse(MEAN)
    assert reduce_axes(model) == 1
    (found,) = evaluate(_at(model, 17), {"x": X})
    np.testing.assert_allclose(found, X.mean(axis=-1, keepdims=True), rtol=1e-6)


def test_axes_that_are_computed_are_refused(parse: Any) -> None:
    model = parse(
        "(float[B, 4] x, int64[1] axes) => (float[B, 1] y) { y = ReduceMean<keepdims = 1>(x, axes) }"
    )
    with pytest.raises(ExportError, match=r"ReduceMean over axes that it computes.*--opset 18"):
        reduce_axes(model)


def test_a_split_names_its_sizes(parse: Any, evaluate: Any) -> None:
    model, x = parse(SPLIT), np.arange(10, dtype=np.float32).reshape(2, 5)
    assert split_sizes(model) == 1
    first, second = evaluate(_at(model, 17), {"x": x})
    np.testing.assert_array_equal(first, x[:, :3])
    np.testing.assert_array_equal(second, x[:, 3:])


def test_a_split_of_an_unknown_dim_is_left_to_the_number_of_outputs(parse: Any, evaluate: Any) -> None:
    model = parse(EQUAL)
    assert split_sizes(model) == 1
    first, second = evaluate(_at(model, 17), {"x": X})
    np.testing.assert_array_equal(np.concatenate([first, second]), X)
    assert len(first) == len(second) == 3


@pytest.mark.parametrize(("dim", "count", "sizes"), [(5, 2, [3, 2]), (6, 3, [2, 2, 2]), (7, 3, [3, 3, 1])])
def test_parts_are_as_the_operator_makes_them(dim: int, count: int, sizes: list[int]) -> None:
    assert sizes_of(dim, count) == sizes


@pytest.mark.parametrize(("opset", "fired"), [(17, 1), (19, 1), (20, 0)])
def test_what_an_opset_has_is_left_alone(parse: Any, opset: int, fired: int) -> None:
    model = parse(GELU.replace("FORM", "none"))
    assert LowerOpset(opset)(model) == fired


def test_an_operator_that_the_opset_lacks_is_refused_with_the_one_that_has_it(parse: Any) -> None:
    model = parse("(float[B, 4] x) => (float[B, 4] y) { y = Mish(x) }")
    with pytest.raises(ExportError, match=r"Mish, which opset 17 has not in this form; choose --opset 18"):
        LowerOpset(17)(model)
    LowerOpset(18)(model)


def test_an_attribute_that_came_later_is_refused(parse: Any) -> None:
    model = parse('(float[B, 4] x, int64[4] pads) => (float[B, 5] y) { y = Pad<mode = "wrap">(x, pads) }')
    with pytest.raises(ExportError, match=r"Pad, which opset 17"):
        LowerOpset(17)(model)
