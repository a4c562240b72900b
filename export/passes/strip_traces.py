"""Drop what the tracer wrote for debugging: stack traces, paths of source files, comments.

They would show the file system of the machine that exported, and make equal graphs differ.
"""

from __future__ import annotations

import itertools
from typing import Any

import onnx_ir as ir


def strip_traces(model: ir.Model) -> int:
    """Return the number of nodes that had such notes."""
    nodes = list(model.graph)
    fired = sum(bool(node.metadata_props or node.doc_string) for node in nodes)
    made = itertools.chain.from_iterable(node.outputs for node in nodes)
    values = (*made, *model.graph.inputs, *model.graph.initializers.values())
    everything: tuple[Any, ...] = (model, model.graph, *nodes, *values)
    for noted in everything:
        noted.metadata_props.clear()
        noted.doc_string = None
    return fired
