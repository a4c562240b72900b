"""Texts and JSON objects of a tokenizer's folder, bounded in size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.files import leads_out
from gpt_onnx.errors import CheckpointError

MAX_TOKENIZER_BYTES = 200_000_000


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        CheckpointError: if it is missing, too large, not UTF-8, or a pipe or a device.
    """
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is no file; a tokenizer lies in files.")
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


def read_own_text(path: Path) -> str:
    """Read a text file of a folder that is written into what is made of it.

    Raises:
        CheckpointError: as read_text, or if it is a link out of the folder, whose text is nobody else's.
    """
    if leads_out(path):
        raise CheckpointError(f"{path} is a link that leads out of the folder; put the file itself there.")
    return read_text(path)


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
        CheckpointError: if the file is there and holds none, or is a link out of the folder.
    """
    return json_object(path, read_own_text(path)) if path.exists() else {}
