"""Text files that users wrote: UTF-8, with or without the mark that some editors put before it.

    without_mark(MARK + "Once upon a time")         # "Once upon a time"
    read_toml(Path("names.toml"))

The mark (U+FEFF, "byte order mark") is no text: no model was trained to begin with it, and JSON and TOML do
not have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARK = "\ufeff"
UTF8 = "utf-8-sig"
"""The encoding for files that are read whole: UTF-8 without its mark."""


def without_mark(text: str) -> str:
    """Return a text without the mark at its start."""
    return text.removeprefix(MARK)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not UTF-8, or no TOML.
    """
    import tomllib  # which few commands need

    return tomllib.loads(path.read_text(encoding=UTF8))
