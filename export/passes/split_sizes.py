"""Split(x, num_outputs=n) -> Split(x, sizes), as before opset 18 there is no num_outputs.

All parts are ceil(dim / n) long, and the last what is left. Declined where the dim is not known: without
sizes the older operator makes n equal parts, which is the same wherever n divides the dim; it is an error
of the operator elsewhere.
"""

from __future__ import annotations

import onnx_ir as ir

from ._graph import dims_of, int64_initializer

COUNT = "num_outputs"


def sizes_of(dim: int, count: int) -> list[int]:
    """Return the parts of a dim."""
    size = -(-dim // count)
    return [size] * (count - 1) + [dim - size * (count - 1)]


def split_sizes(model: ir.Model) -> int:
    """Return the number of splits that now name their sizes, or leave them to the number of outputs."""
    fired = 0
    for node in [node for node in model.graph if node.op_type == "Split" and COUNT in node.attributes]:
        count = node.attributes.pop(COUNT).as_int()
        axis = node.attributes.get("axis")
        dims = dims_of(node.inputs[0]) or []
        place = 0 if axis is None else axis.as_int()
        dim = dims[place] if -len(dims) <= place < len(dims) else None
        if isinstance(dim, int):
            sizes = sizes_of(dim, count)
            name = "sizes_" + "_".join(str(size) for size in sizes)
            node.resize_inputs(2)
            node.replace_input_with(1, int64_initializer(model.graph, name, sizes))
        fired += 1
    return fired
