"""SHA-256 of a file in pieces, without following links and without trusting its size."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from gpt_onnx.bundle._manifest import FileEntry
from gpt_onnx.errors import BundleError

CHUNK_BYTES = 1 << 20
Progress = Callable[[int], None]
"""Called with the number of bytes that were just read."""

_FLAGS = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
)


def open_regular(path: Path) -> int:
    """Return a descriptor of a regular file; never follows a link and never waits for a pipe.

    Raises:
        BundleError: if it is missing, a link, a folder, a device, or not readable.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as exc:
        kind = "is a link" if path.is_symlink() else f"cannot be read ({exc.strerror})"
        raise BundleError(f"{path} {kind}; a bundle holds plain files.") from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{path} is not a plain file; a bundle holds plain files.")
    return descriptor


@contextlib.contextmanager
def _read_faults_told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise BundleError(f"{path} cannot be read: {exc.strerror}.") from exc


def read_bounded(path: Path, limit: int) -> bytes:
    """Return a file's content, at most ``limit`` bytes.

    Raises:
        BundleError: if the file is larger, or cannot be read.
    """
    with open(open_regular(path), "rb") as file, _read_faults_told(path):
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > limit else file.read(limit + 1)
    if size > limit or len(content) > limit:
        raise BundleError(f"{path} has {max(size, len(content))} bytes; at most {limit} are allowed.")
    return content


def hash_file(path: Path, progress: Progress | None = None, *, chunk_bytes: int = CHUNK_BYTES) -> FileEntry:
    """Return the size and the hash of a file, read in chunks.

    Raises:
        BundleError: if it is not a plain file or cannot be read.
    """
    digest, size, buffer = hashlib.sha256(), 0, memoryview(bytearray(chunk_bytes))
    with open(open_regular(path), "rb", buffering=0) as file, _read_faults_told(path):
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            size += count
            if progress is not None:
                progress(count)
    return FileEntry(size=size, sha256=digest.hexdigest())
