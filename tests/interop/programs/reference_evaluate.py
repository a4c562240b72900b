"""ONNX's reference evaluator: each operator in numpy, by the standard's own text; the cache fed back."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from _greedy import greedy
from _order import Order, answer
from onnx.reference import ReferenceEvaluator


class Loop:
    """An evaluator and its cache."""

    side = "left"

    def __init__(self, order: Order) -> None:
        model = onnx.load(order.bundle / "onnx" / "model.onnx")
        self._evaluator = ReferenceEvaluator(model)
        self._past = {}
        for port in model.graph.input:
            if port.name.startswith("past_key_values."):
                dims = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
                kind = onnx.helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
                self._past[port.name] = np.zeros((len(order.prompts), dims[1], 0, dims[3]), kind)

    def run(self, ids: Any, mask: Any, positions: Any) -> Any:
        """Logits, (B, S, V)."""
        feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **self._past}
        values = self._evaluator.run(None, {**feeds, "num_logits_to_keep": np.zeros(1, np.int64)})
        self._past = dict(zip(self._past, values[1:], strict=True))
        return values[0]


def generate(order: Order) -> dict[str, object]:
    """Greedy ids of each prompt."""
    return greedy(Loop(order), order)


if __name__ == "__main__":
    answer(generate)
