"""ONNX Runtime and numpy alone: a batch padded on the side that the graph takes, then a token a step.

The layouts "dynamic" and "plain", GroupQueryAttention or standard operators, float32 or float16 cache.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from _greedy import greedy
from _order import Order, answer

ELEMENTS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class Loop:
    """A session and its cache."""

    def __init__(self, bundle: Path, batch_size: int) -> None:
        manifest = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        if quantization := manifest.get("quantization"):
            level = str(quantization["accuracy_level"])
            options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
        path = str(bundle / manifest["graph"]["graphs"]["model"])
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.side = "right" if manifest["graph"]["attention"] == "gqa" else "left"
        self.has_cache = manifest["graph"]["layout"] == "dynamic"
        self._past = {
            port.name: np.zeros((batch_size, port.shape[1], 0, port.shape[3]), ELEMENTS[port.type])
            for port in self._session.get_inputs()
            if port.name.startswith("past_key_values.")
        }

    def run(self, ids: Any, mask: Any, positions: Any) -> Any:
        """Logits, (B, S, V)."""
        feeds = {"input_ids": ids}
        if self.has_cache:
            feeds |= {"attention_mask": mask, "position_ids": positions, **self._past}
        values = self._session.run(None, feeds)
        self._past = dict(zip(self._past, values[1:], strict=True))
        return values[0]


def _without_cache(loop: Loop, prompt: Sequence[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(loop.run(np.array([ids]), None, None)[0, -1].argmax()))
    return ids[len(prompt) :]


def generate(order: Order) -> dict[str, object]:
    """Greedy ids of each prompt."""
    loop = Loop(order.bundle, len(order.prompts))
    if not loop.has_cache:
        rows = [_without_cache(loop, prompt, order.new_tokens) for prompt in order.prompts]
        return {"ids": rows}
    return greedy(loop, order)


if __name__ == "__main__":
    answer(generate)
