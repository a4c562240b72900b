"""Reshape(x, Concat(dims computed from shapes)) -> Reshape(x, constant).

0 in a Reshape's target copies the input's dim at the same place, and one -1 is inferred:

    Reshape(x[B, S, 768], [B, S, 12, 64])  ->  Reshape(x, [0, 0, 12, 64])
    Reshape(x[B, S, 12, 64], [B, S, 768])  ->  Reshape(x, [0, 0, 768])

so that no shape is computed in any layer. Declined where more than one dim is neither a number nor equal to
the input's dim at its place, and where a dim is the number 0.
"""

from __future__ import annotations

import onnx_ir as ir

from ._graph import Dim, dims_of, int64_initializer, is_constant


def reshape_target(source: list[Dim], result: list[Dim]) -> list[int] | None:
    """Return a constant target that turns ``source`` into ``result``; None if there is none."""
    target: list[int] = []
    for axis, dim in enumerate(result):
        if isinstance(dim, int):
            target.append(dim)
        else:
            target.append(0 if axis < len(source) and source[axis] == dim else -1)
    declined = target.count(-1) > 1 or 0 in result
    return None if declined else target


def static_reshapes(model: ir.Model) -> int:
    """Return the number of reshapes whose target became a constant."""
    fired = 0
    for node in [node for node in model.graph if node.op_type == "Reshape"]:
        source, result = dims_of(node.inputs[0]), dims_of(node.outputs[0])
        known = source is not None and result is not None and not is_constant(node.inputs[1])
        target = reshape_target(source or [], result or []) if known else None
        if target is not None:
            name = "shape_" + "_".join(str(dim).replace("-", "minus") for dim in target)
            node.replace_input_with(1, int64_initializer(model.graph, name, target))
            node.attributes.pop("allowzero", None)  # 0 must mean "as the input"
            fired += 1
    return fired
