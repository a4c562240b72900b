"""Writing a file whole or not at all: under a temporary name, flushed, then renamed over the old one.

And whether a file of a folder that somebody else made is a link out of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path


def leads_out(path: Path) -> bool:
    """Whether a file is a link to somewhere else than its folder or the blobs of Hugging Face's own cache."""
    target, folder = path.resolve(), path.parent.resolve()
    blobs = [above.parent / "blobs" for above in folder.parents if above.name == "snapshots"]
    return target.parent not in (folder, *blobs)


def flush_to_disk(path: Path) -> None:
    """Make the bytes of a file, or the entries of a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
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


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write byte strings one after another, so that no copy of all of them is ever made."""
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
