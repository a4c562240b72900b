"""Gather(W, input_ids) -> scale * (q - zero point) of the rows that the ids name, in standard operators.

Rows are gathered as one byte a number, since Gather has no 4-bit form everywhere, and only they become
float32:

    blocks = Reshape(Cast(Gather(integers, ids)), (B, S, n_blocks, block_size))
    y = Reshape((blocks - Cast(Gather(zeros, ids))) * Gather(scales, ids), (B, S, K))

The integers are those of the head where both are one table, stored again in the order that rows need.
"""

from __future__ import annotations

import onnx_ir as ir

from gpt_onnx.export.quantize.grid import Grid

from ._graph import int64_initializer, named_node
from ._quantized import Uses, part_value
from .quantize_products import take_place, unique_name

_FLOAT = int(ir.DataType.FLOAT)


class _Builder:
    """Appends nodes before one node of a graph."""

    def __init__(self, graph: ir.Graph, before: ir.Node, prefix: str) -> None:
        self._graph, self._before, self._prefix = graph, before, prefix

    def add(
        self, op_type: str, inputs: list[ir.Value | None], name: str, attributes: dict[str, int] | None = None
    ) -> ir.Value:
        node = named_node(op_type, inputs, unique_name(self._graph, f"{self._prefix}.{name}"), attributes)
        self._graph.insert_before(self._before, node)
        return node.outputs[0]

    def rows(self, table: ir.Value, name: str) -> ir.Value:
        """Return float32 rows of a table at the ids."""
        rows = self.add("Gather", [table, self._before.inputs[1]], name, {"axis": 0})
        return self.add("Cast", [rows], f"{name}.float", {"to": _FLOAT}) if name != "row_scales" else rows


def dequantize_lookup(graph: ir.Graph, lookup: ir.Node, uses: Uses, grid: Grid) -> None:
    """Let one lookup read integers."""
    rows, columns = uses.shape
    blocks = columns // grid.block_size
    integers = part_value(graph, uses, grid, "integers", (rows, columns), ir.DataType.UINT8)
    zeros = part_value(graph, uses, grid, "zeros", (rows, blocks), ir.DataType.UINT8)
    scales = part_value(graph, uses, grid, "scales", (rows, blocks), ir.DataType.FLOAT)
    build = _Builder(graph, lookup, uses.value.name or "")
    in_blocks = int64_initializer(
        graph, f"shape_0_0_{blocks}_{grid.block_size}", [0, 0, blocks, grid.block_size]
    )
    of_block = int64_initializer(graph, f"shape_0_0_{blocks}_1", [0, 0, blocks, 1])
    whole = int64_initializer(graph, f"shape_0_0_{columns}", [0, 0, columns])
    numbers = build.add("Reshape", [build.rows(integers, "row_integers"), in_blocks], "row_blocks")
    middle = build.add("Reshape", [build.rows(zeros, "row_zeros"), of_block], "row_zero_blocks")
    size = build.add("Reshape", [build.rows(scales, "row_scales"), of_block], "row_scale_blocks")
    shifted = build.add("Sub", [numbers, middle], "row_shifted")
    scaled = build.add("Mul", [shifted, size], "row_scaled")
    name = unique_name(graph, f"{uses.value.name}.rows_float")
    take_place(graph, named_node("Reshape", [scaled, whole], name), lookup)
