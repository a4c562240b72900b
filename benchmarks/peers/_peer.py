"""What every peer's script ends with: ``serve`` the measurement, or ``prepare`` its own form of the weights.

    python ctranslate2_peer.py prepare weights/gpt2 weights/ct2-int8 int8

Prepared files appear whole or not at all. Only numpy and the peer are there, and the standard library.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Prepare = Callable[[Path, Path, str], None]
"""Makes a file or folder (2) from another (1) in a form that is named (3)."""


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def one_row(rows: Sequence[Sequence[int]], name: str) -> Sequence[int]:
    """Return the only prompt.

    Raises:
        ValueError: if there are several.
    """
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows at once were asked for; {name} is measured with one.")
    return rows[0]


def _prepare(prepare: Prepare, source: Path, made: Path, form: str) -> None:
    staging = made.with_name(f".{made.name}.part")
    if staging.is_dir():
        shutil.rmtree(staging)
    prepare(source, staging, form)
    os.replace(staging, made)


def main(make: Callable[[Mapping[str, Any]], Any], prepare: Prepare | None = None) -> None:
    """Do what the command line says; without a word on it, serve."""
    if sys.argv[1:2] == ["prepare"] and prepare is not None:
        source, made, form = sys.argv[2:]
        _prepare(prepare, Path(source), Path(made), form)
        return
    from gpt_onnx.runtime.bench.serve import serve  # lent by the process that measures

    serve(make)
