"""Drop what the tracer wrote for debugging: stack traces, paths of source files, comments.

They would show the file system of the machine that exported, and make equal graphs differ.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common


def strip_traces(model: ir.Model) -> int:
    """Return the number of nodes that had such notes."""
    fired = sum(bool(node.metadata_props or node.doc_string) for node in model.graph)
    common.ClearMetadataAndDocStringPass()(model)
    model.metadata_props.clear()
    return fired
