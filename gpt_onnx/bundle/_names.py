"""Which names a file of a bundle may have: plain ones, in the bundle itself or in its folder ``onnx``.

    >>> fault_in_name("onnx/model.onnx"), fault_in_name("../secret")
    (None, 'it must be plain letters, digits, ".", "_" or "-", alone or in the folder "onnx"')

A name that passes is the same on every file system: no separator, no "..", no hidden file, no drive, no
letter outside ASCII, nothing that Windows trims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MANIFEST = "manifest.json"
GRAPH_FOLDER = "onnx"
PARITY, QUALITY, REFERENCE = "parity.json", "quality.json", "reference.safetensors"
"""The evidence: what the gate found, how far from float32 it is, and the numbers to check it again."""
AGAIN = "export the bundle again"
"""The remedy for what an export would have written otherwise."""
_PLAIN = re.compile(r"(?:onnx/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(?<!\.)", re.ASCII)
_RULE = 'it must be plain letters, digits, ".", "_" or "-", alone or in the folder "onnx"'


def shorten(value: object, limit: int = 80) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters: what a message may quote of a hostile file."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def fault_in_name(name: str) -> str | None:
    """Return what ``name`` must be and is not, or None where a bundle may hold a file of that name."""
    if name in (MANIFEST, GRAPH_FOLDER):
        return "it is the name of the manifest itself or of the folder of graphs"
    return None if _PLAIN.fullmatch(name) else _RULE


def first_clash(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that a file system that ignores case takes for one, or None."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            return other, name
    return None
