"""MatMul(x, Transpose(W)) [+ bias] -> MatMulNBits(x, packed, scales, zero_points, bias).

com.microsoft::MatMulNBits reads W as blocks of small integers:

    y[n] = sum_k x[k] * scale[n, k / block_size] * (q[n, k] - zero_point[n, k / block_size]) + bias[n]

A weight that is a lookup's table too is stored once, one row an output, and seen through a Reshape: the bytes
are those that GatherBlockQuantized reads. Declined where the sum with the bias has another user in between,
or the bias is not one number an output: the sum then stays a node of its own.
"""

from __future__ import annotations

import onnx_ir as ir

from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.parts import STORED, scale_parts
from gpt_onnx.export.targets import MICROSOFT

from ._graph import dims_of, hand_over, int64_initializer, named_node
from ._quantized import Uses, part_value

BIAS = 5
"""The bias's place among the inputs of MatMulNBits; before it stand zero points and a group index."""


def bias_of(product: ir.Node, outputs: int) -> tuple[ir.Node, ir.Value] | None:
    """Return the sum that adds a bias (N) to a product and to nothing else, and the bias."""
    users = [use.node for use in product.outputs[0].uses()]
    if len(users) != 1 or users[0].op_type != "Add" or product.outputs[0].is_graph_output():
        return None
    bias = next((value for value in users[0].inputs if value is not product.outputs[0]), None)
    if bias is None or not bias.is_initializer() or dims_of(bias) != [outputs]:
        return None
    return users[0], bias


def scale_values(graph: ir.Graph, uses: Uses, grid: Grid) -> list[ir.Value]:
    """Return scales and zero points as MatMulNBits and GatherBlockQuantized take them."""
    return [part_value(graph, uses, grid, stored) for stored in scale_parts(grid)]


def _packed(graph: ir.Graph, uses: Uses, grid: Grid, before: ir.Node) -> ir.Value:
    if not uses.lookups:
        return part_value(graph, uses, grid, "packed")
    shape = int64_initializer(graph, f"{uses.value.name}.blocks", STORED["packed"].dims(uses.shape, grid))
    rows = part_value(graph, uses, grid, "rows")
    blocks = named_node("Reshape", [rows, shape], f"{uses.value.name}.as_blocks")
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
    operands = [product.inputs[0], packed, *scale_values(graph, uses, grid)]
    if with_bias:
        operands += [None] * (BIAS - len(operands)) + [with_bias[1]]
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
