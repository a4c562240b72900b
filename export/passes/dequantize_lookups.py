"""Gather(W, input_ids) -> scale * (q - zero point) of the rows that the ids name, in standard operators.

Rows are gathered as one byte a number, since Gather has no 4-bit form everywhere, and only they become
float32:

    blocks = Reshape(Cast(Gather(integers, ids)), (B, S, n_blocks, block_size))
    y = Reshape((blocks - Cast(Gather(zeros, ids))) * Gather(scales, ids), (B, S, K))

The integers are those of the head where both are one table, stored again in the order that rows need. Rows of
8 bits as MatMulNBits packs them, in blocks, have that order already, and are stored once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.parts import ROW_PARTS

from ._graph import dims_of, int64_initializer, named_node
from ._quantized import Uses, part_value
from .quantize_products import take_place, unique_name

_FLOAT = int(ir.DataType.FLOAT)
MATRIX = 2  # axes of a table with one row an output; in blocks it has three


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


def _middle(graph: ir.Graph, grid: Grid) -> ir.Value:
    """Return the zero point that a symmetric grid does not store."""
    name = f"middle_{grid.bits}"
    if name not in graph.initializers:
        tensor = ir.tensor(np.array(1 << (grid.bits - 1), np.float32), name=name)
        kind = ir.TensorType(tensor.dtype)
        graph.register_initializer(ir.Value(name=name, shape=ir.Shape(()), type=kind, const_value=tensor))
    return graph.initializers[name]


def _in_blocks(graph: ir.Graph, build: _Builder, numbers: ir.Value, table: ir.Value, grid: Grid) -> ir.Value:
    """Return gathered numbers as (B, S, n_blocks, block_size); those of a table in blocks are so already."""
    dims = dims_of(table) or []
    if len(dims) > MATRIX:
        return numbers
    blocks = int(dims[1]) // grid.block_size
    shape = [0, 0, blocks, grid.block_size]
    in_blocks = int64_initializer(graph, f"shape_0_0_{blocks}_{grid.block_size}", shape)
    return build.add("Reshape", [numbers, in_blocks], "row_blocks")


def dequantize_lookup(
    graph: ir.Graph, lookup: ir.Node, uses: Uses, grid: Grid, stored: Sequence[str] = ROW_PARTS
) -> None:
    """Let one lookup read integers.

    Args:
        graph: The graph.
        lookup: ``Gather(W, input_ids)``.
        uses: What W is used for.
        grid: How W is stored.
        stored: Its integers and zero points, one byte a number each, and its scales; symmetric grids need no
            zero points.
    """
    columns = uses.shape[1]
    blocks = columns // grid.block_size
    integers, *zeros, scales = (part_value(graph, uses, grid, name) for name in stored)
    build = _Builder(graph, lookup, uses.value.name or "")
    of_block = int64_initializer(graph, f"shape_0_0_{blocks}_1", [0, 0, blocks, 1])
    whole = int64_initializer(graph, f"shape_0_0_{columns}", [0, 0, columns])
    numbers = _in_blocks(graph, build, build.rows(integers, "row_integers"), integers, grid)
    if zeros:
        middle = build.add("Reshape", [build.rows(zeros[0], "row_zeros"), of_block], "row_zero_blocks")
    else:
        middle = _middle(graph, grid)
    size = build.add("Reshape", [build.rows(scales, "row_scales"), of_block], "row_scale_blocks")
    shifted = build.add("Sub", [numbers, middle], "row_shifted")
    scaled = build.add("Mul", [shifted, size], "row_scaled")
    name = unique_name(graph, f"{uses.value.name}.rows_float")
    take_place(graph, named_node("Reshape", [scaled, whole], name), lookup)
