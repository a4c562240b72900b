"""Read a JSON object of a bundle without trusting it.

    values = read_object(path, limit=1 << 20)

Refused: a file above ``limit`` bytes, more brackets or commas than any honest file has (a small file could
otherwise fill the memory), anything but UTF-8 JSON, and anything but one object.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpt_onnx.errors import BundleError

MAX_CONTAINERS = 1_500_000  # lists and objects: the largest vocabularies in use have 600,000 merge pairs
MAX_ITEMS = 4_000_000


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as exc:
        raise BundleError(f"{path} could not be read: {exc.strerror}; export the bundle again.") from exc
    if len(data) > limit:
        raise BundleError(f"{path} is larger than {limit} bytes, the most that is accepted; export it again.")
    return data


def read_object(path: Path, *, limit: int) -> dict[str, Any]:
    """Return the one JSON object that a file of at most ``limit`` bytes holds.

    Raises:
        BundleError: if it cannot be read, is too large, or is something else.
    """
    data = _read_bytes(path, limit)
    containers, items = data.count(b"[") + data.count(b"{"), data.count(b",")
    if containers > MAX_CONTAINERS or items > MAX_ITEMS:
        raise BundleError(f"{path} has {containers} lists and objects and {items} commas; that is refused.")
    try:
        values = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise BundleError(f"{path} is not UTF-8 JSON: {exc}; export the bundle again.") from exc
    if not isinstance(values, dict):
        raise BundleError(f"{path} holds a {type(values).__name__}, and one JSON object is expected.")
    return values
