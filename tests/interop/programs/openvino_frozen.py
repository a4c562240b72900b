"""OpenVINO on the CPU, in float32, over the two graphs of frozen lengths, which its NPU compiler wants."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import openvino as ov
from _frozen import Run, frozen
from _order import answer

SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}


def load(path: str) -> Run:
    """Open a graph, of which no dim may be dynamic."""
    model = ov.Core().read_model(path)
    assert not model.is_dynamic(), "a dim is dynamic"
    compiled = ov.Core().compile_model(model, "CPU", SETTINGS)

    def run(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        values = compiled(dict(feeds))
        return {name: np.array(values[port]) for port in compiled.outputs for name in port.get_names()}

    return run


if __name__ == "__main__":
    answer(partial(frozen, load=load))
