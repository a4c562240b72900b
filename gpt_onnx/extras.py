"""A package that is not installed, said as the command that installs it."""

from __future__ import annotations

from collections.abc import Mapping

EXTRAS: Mapping[str, str] = {
    "onnxruntime": "cpu",
    "torch": "export",
    "onnx": "export",
    "onnx_ir": "export",
    "onnxscript": "export",
    "safetensors": "export",
    "gguf": "gguf",
}
"""Import name to the extra that brings it."""


def missing_extra(error: ImportError) -> str | None:
    """Return one sentence with the pip command, or None if no extra of ours would help."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    extras = "cpu,export" if extra == "export" else extra
    return f"{package} is not installed, and this needs it; run: pip install 'gpt-onnx[{extras}]'"
