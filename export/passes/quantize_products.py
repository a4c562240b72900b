"""MatMul(x, Transpose(W)) [+ bias] -> MatMulNBits(x, packed, scales, zero_points, bias).

com.microsoft::MatMulNBits reads W as blocks of small integers:

    y[n] = sum_k x[k] * scale[n, k / block_size] * (q[n, k] - zero_point[n, k / block_size]) + bias[n]

A weight that is a lookup's table too is stored once, one row an output, and seen through a Reshape: the bytes
are those that GatherBlockQuantized reads. Declined where the sum with the bias has another user in between,
or the bias is not one number an output: the sum then stays a node of its own.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.targets import MICROSOFT

from ._graph import dims_of, hand_over, int64_initializer, named_node
from ._quantized import Uses, part_value


def bias_of(product: ir.Node, outputs: int) -> tuple[ir.Node, ir.Value] | None:
    """Return the sum that adds a bias (N) to a product and to nothing else, and the bias."""
    users = [use.node for use in product.outputs[0].uses()]
    if len(users) != 1 or users[0].op_type != "Add" or product.outputs[0].is_graph_output():
        return None
    bias = next((value for value in users[0].inputs if value is not product.outputs[0]), None)
    if bias is None or not bias.is_initializer() or dims_of(bias) != [outputs]:
        return None
    return users[0], bias


def scale_parts(graph: ir.Graph, uses: Uses, grid: Grid) -> list[ir.Value | None]:
    """Return scales and zero points as MatMulNBits and GatherBlockQuantized take them."""
    rows, columns = uses.shape
    blocks = columns // grid.block_size
    scales = part_value(graph, uses, grid, "scales", (rows, blocks), ir.DataType.FLOAT)
    if grid.symmetric:
        return [scales, None]
    width = math.ceil(blocks * grid.bits / 8)
    return [scales, part_value(graph, uses, grid, "zero_points", (rows, width), ir.DataType.UINT8)]


def rows_part(graph: ir.Graph, uses: Uses, grid: Grid) -> ir.Value:
    """Return the packed weight with one row an output."""
    rows, columns = uses.shape
    return part_value(graph, uses, grid, "rows", (rows, columns * grid.bits // 8), ir.DataType.UINT8)


def _packed(graph: ir.Graph, uses: Uses, grid: Grid, before: ir.Node) -> ir.Value:
    rows, columns = uses.shape
    dims = (rows, columns // grid.block_size, grid.block_size * grid.bits // 8)
    if not uses.lookups:
        return part_value(graph, uses, grid, "packed", dims, ir.DataType.UINT8)
    shape = int64_initializer(graph, f"{uses.value.name}.blocks", dims)
    blocks = named_node("Reshape", [rows_part(graph, uses, grid), shape], f"{uses.value.name}.as_blocks")
    graph.insert_before(before, blocks)
    return blocks.outputs[0]


def quantize_product(
    graph: ir.Graph, product: ir.Node, uses: Uses, grid: Grid, accuracy_level: int, packed: ir.Value | None
) -> ir.Value:
    """Put MatMulNBits in the place of one product and of the bias that is added to it.

    Args:
        graph: The graph.
        product: ``MatMul(x, Transpose(W))``.
        uses: What W is used for.
        grid: How W is stored.
        accuracy_level: 4: x is rounded to int8; 0: it is not.
        packed: W's packed value, where another product has made it.

    Returns:
        W's packed value.
    """
    rows, columns = uses.shape
    with_bias = bias_of(product, rows)
    last = with_bias[0] if with_bias else product
    packed = packed or _packed(graph, uses, grid, product)
    operands = [product.inputs[0], packed, *scale_parts(graph, uses, grid)]
    if with_bias:
        operands += [None, with_bias[1]]
    while operands[-1] is None:
        operands.pop()
    sizes = {"K": columns, "N": rows, "bits": grid.bits, "block_size": grid.block_size}
    name = unique_name(graph, f"{uses.value.name}.product")
    node = ir.node(
        "MatMulNBits", operands, sizes | {"accuracy_level": accuracy_level}, domain=MICROSOFT, name=name
    )
    take_place(graph, node, last)
    return packed


def unique_name(graph: ir.Graph, name: str) -> str:
    """Return a name that no node of the graph has: a weight may be used more than once."""
    taken, number, found = {node.name for node in graph}, 1, name
    while found in taken:
        number += 1
        found = f"{name}.{number}"
    return found


def take_place(graph: ir.Graph, node: ir.Node, old: ir.Node) -> None:
    """Insert a node whose only output takes name, shape and users of an old node's, unused then."""
    graph.insert_before(old, node)
    hand_over(old.outputs[0], node.outputs[0])
