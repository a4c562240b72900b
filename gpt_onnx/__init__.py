"""gpt-onnx: a GPT from PyTorch to ONNX, checked with numbers, and run without PyTorch.

    from gpt_onnx import export_bundle, load
    export_bundle("models/sotu", "bundle")
    print(load("bundle").complete("My fellow citizens,", max_new_tokens=50))

Importing this package imports nothing heavy; each name is fetched when it is first used (PEP 562).
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # a type checker takes it for true; typing itself takes milliseconds
if TYPE_CHECKING:
    from typing import Any

    from gpt_onnx.export import export_bundle as export_bundle
    from gpt_onnx.runtime import OnnxGPT as OnnxGPT
    from gpt_onnx.runtime import load as load

__version__ = "0.1.0"
__all__ = ["OnnxGPT", "__version__", "export_bundle", "load"]

_HOMES = {"export_bundle": "gpt_onnx.export", "load": "gpt_onnx.runtime", "OnnxGPT": "gpt_onnx.runtime"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpt_onnx' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ImportError as exc:
        from gpt_onnx.extras import missing_extra

        message = missing_extra(exc)
        if message is None:
            raise
        raise ImportError(message, name=exc.name) from exc
