"""Run a bundle without PyTorch: an engine of token ids, a sampler, and text above them.

    from gpt_onnx.runtime import OnnxGPT, load
    print(load("bundle").complete("My fellow citizens,", max_new_tokens=50))    # text
    OnnxGPT.load("bundle").logits([[5, 6, 7]])                                  # ids

Neither torch nor onnx is imported here, ever. Names are fetched when they are first used (PEP 562).
"""

from __future__ import annotations

if __name__ != "gpt_onnx.runtime":
    raise ImportError("import gpt_onnx.runtime, not the folder 'runtime'")

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Generation as Generation
    from .engine import OnnxGPT as OnnxGPT
    from .sampling import Sampling as Sampling
    from .text import TextGPT as TextGPT
    from .text import load as load

__all__ = ["Generation", "OnnxGPT", "Sampling", "TextGPT", "load"]

_HOMES = {
    "Generation": "engine",
    "OnnxGPT": "engine",
    "Sampling": "sampling",
    "TextGPT": "text",
    "load": "text",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpt_onnx.runtime' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
