"""Quantised weights are read back from the nodes that use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError
from gpt_onnx.export.quantize._stored_nodes import Found, found_in
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.parts import STORED
from gpt_onnx.export.quantize.quantized import Quantized
from gpt_onnx.export.quantize.rtn import round_to_nearest
from gpt_onnx.export.quantize.stored import dequantized

ROWS, INPUTS, BLOCK = 10, 48, 16
MICROSOFT = "com.microsoft"
WEIGHT = np.random.default_rng(0).standard_normal((ROWS, INPUTS)).astype(np.float32)


def stored_as(name: str, array: NDArray[Any], dtype: ir.DataType | None = None) -> ir.Value:
    tensor: ir.TensorProtocol = ir.tensor(np.ascontiguousarray(array), name=name)
    if dtype in (ir.DataType.UINT4, ir.DataType.INT4):
        tensor = ir.PackedTensor(array, dtype, shape=ir.Shape((INPUTS, ROWS)), name=name)
    shape, kind = ir.Shape([int(str(dim)) for dim in tensor.shape]), ir.TensorType(tensor.dtype)
    return ir.Value(name=name, shape=shape, type=kind, const_value=tensor)


def model_of(nodes: list[ir.Node]) -> ir.Model:
    values = {value.name: value for node in nodes for value in node.inputs if value and value.const_value}
    graph = ir.Graph([], [], nodes=nodes, initializers=list(values.values()), opset_imports={"": 21})
    return ir.Model(graph, ir_version=10)


def found(*nodes: ir.Node) -> list[Found]:
    return list(found_in([model_of(list(nodes))]))


def product(
    quantized: Quantized, *, block_size: int | None = None, packed: ir.Value | None = None
) -> ir.Node:
    grid = quantized.grid
    values = [packed or stored_as("w.packed", quantized.packed), stored_as("w.scales", quantized.scales)]
    if quantized.zero_points is not None:
        values.append(stored_as("w.zero_points", quantized.zero_points))
    attributes = {"K": INPUTS, "N": ROWS, "bits": grid.bits, "accuracy_level": 4}
    attributes["block_size"] = block_size or grid.block_size
    return ir.node("MatMulNBits", [ir.Value(name="x"), *values], attributes, domain=MICROSOFT)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_product_s_weight_is_what_was_stored(bits: int, symmetric: bool) -> None:
    quantized = round_to_nearest(WEIGHT, Grid(bits=bits, block_size=BLOCK, symmetric=symmetric))
    (use,) = found(product(quantized))
    assert (use.name, use.grid, use.level) == ("w", quantized.grid, 4)
    np.testing.assert_array_equal(dequantized(use.read()), quantized.dequantized())


def test_a_table_is_read_through_its_reshape() -> None:
    quantized = round_to_nearest(WEIGHT, Grid(bits=4, block_size=BLOCK))
    table, scales = (
        stored_as("w.packed", STORED["rows"].array(quantized)),
        stored_as("w.scales", quantized.scales),
    )
    reshape = ir.node("Reshape", [table, stored_as("shape", np.array([ROWS, -1, 8]))])
    lookup = ir.node(
        "GatherBlockQuantized",
        [
            table,
            ir.Value(name="ids"),
            scales,
            stored_as("w.zero_points", STORED["zero_points"].array(quantized)),
        ],
        {"bits": 4, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1},
        domain=MICROSOFT,
    )
    uses = found(lookup, reshape, product(quantized, packed=reshape.outputs[0]))
    assert [(use.name, use.level, use.integers.name) for use in uses] == [
        ("w", None, "w.packed"),
        ("w", 4, "w.packed"),
    ]
    for use in uses:
        np.testing.assert_array_equal(use.read().dequantized(), quantized.dequantized())


@pytest.mark.parametrize("bits", [4, 8])
def test_columns_of_standard_operators_are_turned_over(bits: int) -> None:
    quantized = round_to_nearest(WEIGHT, Grid(bits=bits, block_size=BLOCK))
    integers, zeros = quantized.integers().T, quantized.zeros().T
    if bits == 4:
        kind = ir.DataType.UINT4
        columns = stored_as("w.columns", STORED["columns"].array(quantized), kind)
        packed = ir.PackedTensor(
            STORED["column_zero_points"].array(quantized), kind, shape=ir.Shape(zeros.shape), name="w.zeros"
        )
        points = ir.Value(name="w.zeros", shape=packed.shape, type=ir.TensorType(kind), const_value=packed)
    else:
        columns, points = stored_as("w.columns", integers), stored_as("w.zeros", zeros)
    scales = stored_as("w.column_scales", STORED["column_scales"].array(quantized))
    node = ir.node("DequantizeLinear", [columns, scales, points], {"axis": 0, "block_size": BLOCK})
    (use,) = found(node)
    assert (use.name, use.grid) == ("w", quantized.grid)
    np.testing.assert_array_equal(use.read().dequantized(), quantized.dequantized())


def test_a_block_size_that_does_not_fit_the_bytes_is_refused() -> None:
    quantized = round_to_nearest(WEIGHT, Grid(bits=4, block_size=BLOCK))
    with pytest.raises(BundleError, match="multiple of its node's block_size = 32"):
        found(product(quantized, block_size=32))


def test_scales_that_are_too_few_are_refused() -> None:
    quantized = round_to_nearest(WEIGHT, Grid(bits=4, block_size=BLOCK))
    node = product(quantized)
    node.replace_input_with(2, stored_as("w.scales", quantized.scales[:, :1]))
    (use,) = found(node)
    with pytest.raises(BundleError, match=r"w\.scales has the shape"):
        use.read()
