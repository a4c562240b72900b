"""Range(start, limit, delta) of constants -> the numbers themselves.

``fold_constants`` computes small ones alone; in a graph of frozen lengths every one is known, and compilers
for NPUs take no Range.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir


def constant_ranges(model: ir.Model) -> int:
    """Return the number of ranges that became constants."""
    fired = 0
    for node in [node for node in model.graph if node.op_type == "Range" and not node.domain]:
        tensors = [None if value is None else ir.convenience.get_const_tensor(value) for value in node.inputs]
        bounds = [tensor.numpy().reshape(()) for tensor in tensors if tensor is not None]
        if len(bounds) < len(tensors):
            continue
        start, limit, delta = (bound.item() for bound in bounds)
        numbers = np.arange(start, limit, delta, dtype=bounds[0].dtype)
        old = node.outputs[0]
        name, old.name = old.name or node.name or "range", f"{old.name}.computed"
        made = ir.Value(
            name=name,
            shape=ir.Shape(numbers.shape),
            type=ir.TensorType(ir.DataType.from_numpy(numbers.dtype)),
            const_value=ir.tensor(numbers, name=name),
        )
        model.graph.register_initializer(made)
        ir.convenience.replace_all_uses_with(old, made)
        model.graph.remove(node, safe=True)
        fired += 1
    return fired
