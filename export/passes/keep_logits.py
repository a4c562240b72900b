"""Head(x) -> Head(x[:, -num_logits_to_keep:]), so that generation computes one row of logits, not all.

``num_logits_to_keep`` is a graph input with a default initializer of 0, which keeps all positions: a client
that does not know it never sees it. It cannot be traced, as the tracer knows no default inputs.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gpt_onnx.errors import ExportError

from ._graph import find_head, int64_initializer, named_node

KEEP = "num_logits_to_keep"


def keep_logits(model: ir.Model) -> int:
    """Cut the head's input to its last positions; return 1.

    Raises:
        ExportError: if the logits do not come from a matrix product.
    """
    graph, head = model.graph, find_head(model)
    if head is None:
        raise ExportError("the graph's logits do not come from a matrix product with the head's weight.")
    keep = int64_initializer(graph, KEEP, [0])
    end = int64_initializer(graph, "int64_max", [np.iinfo(np.int64).max])
    axis = int64_initializer(graph, "axis_1", [1])
    start = named_node("Neg", [keep], "keep_logits_start")
    cut = named_node("Slice", [head.matmul.inputs[0], start.outputs[0], end, axis], "keep_logits")
    graph.insert_before(head.matmul, [start, cut])
    head.matmul.replace_input_with(0, cut.outputs[0])
    graph.inputs.append(keep)
    return 1
