"""ONNX Runtime and numpy alone, over the two graphs of frozen lengths."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import onnxruntime as ort
from _frozen import Run, frozen
from _order import answer


def load(path: str) -> Run:
    """Open a graph."""
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]

    def run(feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(zip(names, session.run(names, feeds), strict=True))

    return run


if __name__ == "__main__":
    answer(partial(frozen, load=load))
