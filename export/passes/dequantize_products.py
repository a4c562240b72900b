"""MatMul(x, Transpose(W)) -> MatMul(x, DequantizeLinear(columns, scales, zero points)).

Standard operators from opset 21 on. The weight is stored as (K, N), with one scale for block_size inputs of
an output, so that neither a runtime that multiplies nor one that fuses the two nodes has to turn it:

    W[k, n] = scale[k / block_size, n] * (q[k, n] - zero_point[k / block_size, n])

ONNX Runtime makes MatMulNBits of the two, at accuracy level 4 unless
``session.qdq_matmulnbits_accuracy_level`` says otherwise.
"""

from __future__ import annotations

import onnx_ir as ir

from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.parts import COLUMN_PARTS

from ._quantized import Uses, part_value


def dequantize_product(graph: ir.Graph, product: ir.Node, uses: Uses, grid: Grid) -> None:
    """Let one product read integers; all products of a weight share one DequantizeLinear."""
    name = f"{uses.value.name}.dequantized"
    made = next((node for node in graph if node.name == name), None)
    product.replace_input_with(1, (made or _dequantized(graph, product, uses, grid, name)).outputs[0])


def _dequantized(graph: ir.Graph, before: ir.Node, uses: Uses, grid: Grid, name: str) -> ir.Node:
    outputs, inputs = uses.shape
    operands = [part_value(graph, uses, grid, stored) for stored in COLUMN_PARTS]
    node = ir.node("DequantizeLinear", operands, {"axis": 0, "block_size": grid.block_size}, name=name)
    node.outputs[0].name = name
    node.outputs[0].shape, node.outputs[0].type = (
        ir.Shape((inputs, outputs)),
        ir.TensorType(ir.DataType.FLOAT),
    )
    graph.insert_before(before, node)
    return node
