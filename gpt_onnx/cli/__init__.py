"""The command ``gpt-onnx``: commands are imported when they are used, heavy packages when they run.

Exit codes: 0 done, 1 a clear error, 2 usage, 3 the numbers differ, 130 interrupted.
"""

from gpt_onnx.cli._group import main

__all__ = ["main"]
