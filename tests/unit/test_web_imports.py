"""Building a site needs neither PyTorch nor onnx nor ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
for name in ("torch", "onnx", "onnxruntime"):
    sys.modules[name] = None
import gpt_onnx.web
for name in gpt_onnx.web.__all__:
    getattr(gpt_onnx.web, name)
print("imported")
"""


def test_web_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "imported"


def test_public_names_are_pinned() -> None:
    import gpt_onnx.web

    assert gpt_onnx.web.__all__ == ["SiteReport", "build_site", "check_fit", "serve", "vendor"]
