"""Remove what computes nothing: identities, repeated nodes, unused nodes, unused opset imports."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

_CLEANERS = (
    common.IdentityEliminationPass,
    common.CommonSubexpressionEliminationPass,
    common.RemoveUnusedNodesPass,
    common.RemoveUnusedFunctionsPass,
    common.RemoveUnusedOpsetsPass,
)


def tidy(model: ir.Model) -> int:
    """Return by how many nodes the graph got smaller."""
    before = len(model.graph)
    for cleaner in _CLEANERS:
        cleaner()(model)
    return before - len(model.graph)


def strip_traces(model: ir.Model) -> int:
    """Drop stack traces, source paths and comments of the machine that traced; return 1."""
    common.ClearMetadataAndDocStringPass()(model)
    model.metadata_props.clear()
    return 1
