"""Texts and JSON objects of a tokenizer's folder, bounded in size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpt_onnx.errors import CheckpointError

MAX_TOKENIZER_BYTES = 200_000_000


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        CheckpointError: if it is missing, too large or not UTF-8.
    """
    try:
        if path.stat().st_size > MAX_TOKENIZER_BYTES:
            raise CheckpointError(
                f"{path} has {path.stat().st_size} bytes; at most {MAX_TOKENIZER_BYTES} are read."
            )
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise CheckpointError(f"{path} could not be read: {exc.strerror or exc}.") from exc
    except UnicodeDecodeError as exc:
        raise CheckpointError(f"{path} is not UTF-8 text: {exc.reason} at byte {exc.start}.") from exc


def json_object(path: Path, text: str) -> dict[str, Any]:
    """Return the object that the text of a file holds.

    Raises:
        CheckpointError: if it is not JSON, or not an object.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise CheckpointError(f"{path} is not valid JSON: {exc}.") from exc
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds a {type(values).__name__}; it must hold one JSON object.")
    return values


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty where there is no such file.

    Raises:
        CheckpointError: if the file is there and holds none.
    """
    return json_object(path, read_text(path)) if path.exists() else {}
