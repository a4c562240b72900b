"""Gather(W, input_ids) -> GatherBlockQuantized(packed rows, input_ids, scales, zero_points).

com.microsoft::GatherBlockQuantized takes rows of small integers and returns them as float32:

    y[k] = scale[id, k / block_size] * (q[id, k] - zero_point[id, k / block_size])
"""

from __future__ import annotations

import onnx_ir as ir

from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.targets import MICROSOFT

from ._quantized import Uses, part_value
from .quantize_products import scale_values, take_place, unique_name


def quantize_lookup(graph: ir.Graph, lookup: ir.Node, uses: Uses, grid: Grid) -> None:
    """Put GatherBlockQuantized in the place of one lookup."""
    rows = part_value(graph, uses, grid, "rows")
    operands = [rows, lookup.inputs[1], *scale_values(graph, uses, grid)]
    axes = {"gather_axis": 0, "quantize_axis": 1}
    sizes = {"bits": grid.bits, "block_size": grid.block_size}
    name = unique_name(graph, f"{uses.value.name}.lookup")
    node = ir.node("GatherBlockQuantized", operands, axes | sizes, domain=MICROSOFT, name=name)
    take_place(graph, node, lookup)
