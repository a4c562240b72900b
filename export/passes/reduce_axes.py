"""ReduceMean(x, axes) -> ReduceMean(x) with an attribute ``axes``, as before opset 18; its kin likewise.

ReduceSum takes its axes as an input since opset 13 and is left alone.

Raises:
    ExportError: where the axes are computed, or none are given and that means no axis.
"""

from __future__ import annotations

import onnx_ir as ir

from gpt_onnx.errors import ExportError

REDUCTIONS = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)
NOOP = "noop_with_empty_axes"


def _axes(node: ir.Node) -> list[int]:
    """Return the axes; nothing stands for all of them."""
    value = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    noop = node.attributes.get(NOOP)
    if (value is not None and tensor is None) or (value is None and noop is not None and noop.as_int()):
        raise ExportError(
            f"the graph has {node.op_type} over axes that it computes, which opset 17 has not; "
            "choose --opset 18 or above."
        )
    return [] if tensor is None else [int(axis) for axis in tensor.numpy().reshape(-1)]


def reduce_axes(model: ir.Model) -> int:
    """Return the number of reductions whose axes are an attribute now."""
    fired = 0
    for node in [node for node in model.graph if node.op_type in REDUCTIONS]:
        axes = _axes(node)
        node.attributes.pop(NOOP, None)
        node.resize_inputs(1)
        if axes:
            node.attributes["axes"] = ir.AttrInt64s("axes", axes)
        fired += 1
    return fired
