"""A graph of frozen lengths has no dim that is known at run time only: compilers for NPUs take no other.

    check_static(model)

Refused: operators whose output's shape depends on values (COMPUTED), an input that says a shape and is not a
constant (SHAPES), and any value whose dims are not all numbers, also after ONNX's own shape inference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from gpt_onnx.errors import ExportError

from .passes._graph import dims_of, is_constant

COMPUTED = frozenset(("Compress", "NonZero", "Range", "Shape", "Size", "Unique"))
SHAPES: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1, 3),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
}
"""Operators of the standard to the places of inputs that say a shape."""


def _faults(node: ir.Node) -> Iterator[str]:
    """Yield what of a node is known at run time only."""
    if not node.domain and node.op_type in COMPUTED:
        yield f"{node.op_type} {node.name} computes with a shape"
    for place in () if node.domain else SHAPES.get(node.op_type, ()):
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is not None and not is_constant(value):
            yield f"the shape of {node.op_type} {node.name} is computed"
    for output in node.outputs:
        dims = dims_of(output)
        if output.name and (dims is None or not all(isinstance(dim, int) for dim in dims)):
            yield f"{output.name} of {node.op_type} has the dims {dims}"


def check_static(model: ir.Model) -> None:
    """Infer every shape, which the file then tells, and see that all are numbers.

    Raises:
        ExportError: naming the first that is not.
    """
    common.ShapeInferencePass()(model)
    for node in model.graph:
        if fault := next(_faults(node), None):
            raise ExportError(
                f"{fault}, and a frozen graph has numbers alone; give --seq-len and --batch-size no size of "
                "dynamic, and let the module compute with fixed shapes."
            )
