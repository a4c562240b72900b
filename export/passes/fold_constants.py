"""Compute what depends on constants alone, where the result is small.

The folding itself is onnxscript's. Parameters have no value at this point and so are never folded.
"""

from __future__ import annotations

import onnx_ir as ir
from onnxscript import optimizer

SIZE_LIMIT = 1024  # elements: shapes, axes and scalars, never a table


def fold_constants(model: ir.Model) -> int:
    """Return by how many nodes the graph got smaller."""
    before = len(model.graph)
    optimizer.fold_constants(
        model, input_size_limit=SIZE_LIMIT, output_size_limit=SIZE_LIMIT, onnx_shape_inference=False
    )
    return before - len(model.graph)
