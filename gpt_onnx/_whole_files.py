"""Writing a file whole or not at all: under a temporary name, flushed, then renamed over the old one.

replace_file(Path("report.json"), lambda file: file.write_text(text, encoding="utf-8"))
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


def flush_to_disk(path: Path) -> None:
    """Make the bytes of a file, or the entries of a folder, survive a power cut; Windows has it for files."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file under a temporary name beside ``path``, then put it in the place of ``path``.

    A reader sees the old file or the new one, whole. On any exception the old file stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        flush_to_disk(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush_to_disk(path.parent)
