"""MatMul(x, Transpose(W)) -> MatMul(x, W stored transposed), for a parameter W that nothing else uses.

PyTorch keeps a linear layer as (out, in); MatMul wants (in, out). Stored so, no runtime has to transpose or
copy it at load. The binder of weights sees the mark ``STORED_TRANSPOSED`` on the value.
"""

from __future__ import annotations

import onnx_ir as ir

from ._graph import transposed_parameter

STORED_TRANSPOSED = "gpt_onnx.stored_transposed"


def transpose_weights(model: ir.Model) -> int:
    """Return the number of weights that are now stored transposed."""
    fired = 0
    for node in list(model.graph):
        weight = transposed_parameter(node)
        if weight is None or len(weight.uses()) != 1 or weight.shape is None:
            continue
        weight.shape = ir.Shape(reversed(list(weight.shape)))
        weight.meta[STORED_TRANSPOSED] = True
        ir.convenience.replace_all_uses_with(node.outputs[0], weight)
        model.graph.remove(node, safe=True)
        fired += 1
    return fired
