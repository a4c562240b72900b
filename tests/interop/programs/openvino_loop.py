"""OpenVINO on the CPU, in float32: a batch padded on the side that the graph takes, then a token a step."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import openvino as ov
from _greedy import greedy
from _order import Order, answer

SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}


class Loop:
    """A compiled model and its cache."""

    def __init__(self, order: Order) -> None:
        manifest = json.loads((order.bundle / "manifest.json").read_text(encoding="utf-8"))
        self.side = "right" if manifest["graph"]["attention"] == "gqa" else "left"
        model = ov.Core().read_model(order.bundle / manifest["graph"]["graphs"]["model"])
        self._run = ov.Core().compile_model(model, "CPU", SETTINGS)
        self._names = {port.get_any_name() for port in self._run.inputs}
        self._past = {
            port.get_any_name(): self._empty(port, len(order.prompts))
            for port in self._run.inputs
            if port.get_any_name().startswith("past_key_values.")
        }

    @staticmethod
    def _empty(port: Any, batch_size: int) -> Any:
        dims = port.partial_shape
        shape = (batch_size, dims[1].get_length(), 0, dims[3].get_length())
        return np.zeros(shape, port.element_type.to_dtype())

    def run(self, ids: Any, mask: Any, positions: Any) -> Any:
        """Logits, (B, S, V)."""
        feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, **self._past}
        if "num_logits_to_keep" in self._names:
            feeds["num_logits_to_keep"] = np.zeros(1, np.int64)
        values = self._run(feeds)
        self._past = {
            name: values[name.replace("past_key_values.", "present.")].copy() for name in self._past
        }
        return values["logits"]


def generate(order: Order) -> dict[str, object]:
    """Greedy ids of each prompt."""
    return greedy(Loop(order), order)


if __name__ == "__main__":
    answer(generate)
