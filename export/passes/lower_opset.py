"""A graph of opset 21 -> the same in an older opset, or the operator that cannot be had there.

    LowerOpset(17)(model)          # how many nodes were rewritten

Each operator whose document changed between the two opsets is either rewritten by a pass (LOWERINGS), or one
of WIDENED: its newer form only takes more element types, or has attributes and inputs that the node does not
use. Anything else is refused by name, so that no node means something else in the older opset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from gpt_onnx.errors import ExportError

from .gelu_parts import gelu_parts
from .reduce_axes import reduce_axes
from .split_sizes import split_sizes

TRACED = 21
"""The opset in which graphs are traced."""
_SINCE_17 = (
    *("Cast", "CastLike", "Constant", "ConstantOfShape", "Equal", "Flatten", "Identity", "IsInf", "IsNaN"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *(
        "ReduceProd",
        "ReduceSumSquare",
        "Reshape",
        "Shape",
        "Size",
        "Split",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ),
)
WIDENED: Mapping[str, int] = {
    **dict.fromkeys(_SINCE_17, 17),
    "ScatterElements": 18,
    "ScatterND": 18,
    "Pad": 19,
}
"""Operators whose newer forms mean the same for what an older one takes, and the opset from which that holds:
later ones brought values of an attribute that this check does not look at."""
_FLOAT8_ONLY = "saturate"


def drop_saturate(model: ir.Model) -> int:
    """Cast(x, saturate) -> Cast(x): the attribute is of opset 19 and says something of 8-bit floats alone."""
    casts = [node for node in model.graph if node.op_type in ("Cast", "CastLike")]
    return sum(node.attributes.pop(_FLOAT8_ONLY, None) is not None for node in casts)


@dataclass(frozen=True, slots=True)
class Lowering:
    """A rewrite of what an opset brought."""

    since: int
    """Applied below this opset."""
    rewrite: Callable[[ir.Model], int]


LOWERINGS: tuple[Lowering, ...] = (
    Lowering(20, gelu_parts),
    Lowering(19, drop_saturate),
    Lowering(18, split_sizes),
    Lowering(18, reduce_axes),
)


def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return None


def _fits(node: ir.Node, schema: onnx.defs.OpSchema) -> bool:
    known: Mapping[str, object] = schema.attributes
    return set(node.attributes) <= set(known) and len(node.inputs) <= schema.max_input


def _check(node: ir.Node, opset: int) -> None:
    """Refuse an operator that means something else in an opset, or is not there.

    Raises:
        ExportError: naming the opset that has it.
    """
    newer, older = (_schema(node.op_type, version) for version in (TRACED, opset))
    if newer is None:
        return  # no operator that onnx knows: the operators' own check names it
    same = older is not None and older.since_version == newer.since_version
    widened = older is not None and opset >= WIDENED.get(node.op_type, TRACED) and _fits(node, older)
    if not (same or widened):
        raise ExportError(
            f"the graph has {node.op_type}, which opset {opset} has not in this form; choose --opset "
            f"{newer.since_version} or above, or replace what makes it by plain operations."
        )


class LowerOpset:
    """See the module.

    Raises:
        ExportError: naming an operator that the opset lacks.
    """

    __name__ = "lower_opset"

    def __init__(self, opset: int) -> None:
        self.opset = opset

    def __call__(self, model: ir.Model) -> int:
        """Return the number of nodes that were rewritten."""
        fired = sum(low.rewrite(model) for low in LOWERINGS if self.opset < low.since)
        for node in model.graph:
            if not node.domain:
                _check(node, self.opset)
        return fired
