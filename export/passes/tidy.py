"""Remove what computes nothing: identities, repeated nodes, unused nodes and functions."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

_CLEANERS = (
    common.IdentityEliminationPass,
    common.CommonSubexpressionEliminationPass,
    common.RemoveUnusedNodesPass,
    common.RemoveUnusedFunctionsPass,
)


def tidy(model: ir.Model) -> int:
    """Return by how many nodes the graph got smaller."""
    before = len(model.graph)
    for cleaner in _CLEANERS:
        cleaner()(model)
    return before - len(model.graph)
