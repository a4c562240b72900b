"""A file that a command writes beside its answer: never inside a bundle, and over nothing but its like.

    check_result_file(page, REPORT)                     # before minutes of work
    write_result_file(page, REPORT, lambda file: file.write_bytes(content))

It is written beside its place and renamed. What a link stands for is replaced, not the link.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx._paths import real_path
from gpt_onnx._whole_files import replace_file
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._publish import refuse_inside_a_bundle
from gpt_onnx.errors import InputError

LOOKED_AT, SHOWN = 2048, 16  # bytes of a file that is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of file that may be replaced by one of its like."""

    words: str
    """What a file of this kind is."""
    start: re.Pattern[bytes]
    """What its first bytes match."""


def _refuse_other(path: Path, kind: Kind) -> None:
    with path.open("rb") as file:
        head = file.read(LOOKED_AT)
    if not kind.start.match(head):
        found = f"begins with {shorten(head[:SHOWN])}" if head else "is empty"
        raise InputError(
            f"{path} is already there and {found}, and only {kind.words} is replaced; move it away, or name "
            "another file."
        )


def check_result_file(path: Path, kind: Kind) -> None:
    """Refuse a place where a file must not be written.

    Raises:
        BundleError: if it is inside a bundle.
        InputError: if something else than a file of the kind is there, or it cannot be read.
    """
    refuse_inside_a_bundle(real_path(path))
    try:
        if path.is_file():
            _refuse_other(path, kind)
        elif path.exists():
            raise InputError(f"{path} is {'a folder' if path.is_dir() else 'no regular file'}; name a file.")
        elif real_path(path).is_symlink():
            raise InputError(f"{path} is a link that leads to itself; name another file.")
    except OSError as exc:
        raise InputError(f"{path} could not be read: {exc.strerror or exc}; name another file.") from exc


def write_result_file(path: Path, kind: Kind, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file, and put it in its place.

    Raises:
        BundleError: if it is inside a bundle.
        InputError: if something else than a file of the kind is there, or it cannot be written.
    """
    check_result_file(path, kind)
    try:
        replace_file(real_path(path), write)
    except OSError as exc:
        raise InputError(f"{path} could not be written: {exc.strerror or exc}; name another file.") from exc
