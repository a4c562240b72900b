"""Training a GPT from text: a byte-level BPE, AdamW, a cosine, and a run that survives being killed.

Names are fetched when they are first used (PEP 562): the options can be looked at without PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpt_onnx.train.loop import stopped_seed as stopped_seed
    from gpt_onnx.train.loop import train as train
    from gpt_onnx.train.options import TrainOptions as TrainOptions
    from gpt_onnx.train.options import TrainProgress as TrainProgress
    from gpt_onnx.train.options import TrainReport as TrainReport

__all__ = ["TrainOptions", "TrainProgress", "TrainReport", "stopped_seed", "train"]

_HOMES = {
    "TrainOptions": "options",
    "TrainProgress": "options",
    "TrainReport": "options",
    "stopped_seed": "loop",
    "train": "loop",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpt_onnx.train' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
