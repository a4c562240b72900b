"""Start the program of a contender under any Python from 3.11 on: the first thing that its process runs.

    python -P _boot.py .../gpt_onnx module gpt_onnx.runtime.bench.bundle_contender
    python -P _boot.py .../gpt_onnx script peers/llama_cpp.py

This file is run by its path and imports the standard library only. It lends the package gpt_onnx of the
process that measures, and nothing beside it: a folder of packages on ``sys.path`` would lend all of them, to
a Python that may be another version with other packages of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path


def _lend(folder: Path) -> None:
    """Make the folder importable as gpt_onnx, whatever this Python has under that name."""
    spec = importlib.util.spec_from_file_location(
        "gpt_onnx", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["gpt_onnx"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def _run_module(name: str) -> None:
    importlib.import_module(name).main()


def _run_script(path: str) -> None:
    """Run a file as ``python FILE`` does: modules beside it can be imported."""
    sys.argv[:] = [path]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")


RUN: Mapping[str, Callable[[str], None]] = {"module": _run_module, "script": _run_script}

if __name__ == "__main__":
    _, package_folder, kind, target = sys.argv
    _lend(Path(package_folder))
    RUN[kind](target)
