"""Prompts from the command line: text, a file, standard input, or token ids."""

from __future__ import annotations

import re
import sys
from typing import TypeAlias

from gpt_onnx._user_text import without_mark
from gpt_onnx.cli._options import integers
from gpt_onnx.errors import InputError

Prompt: TypeAlias = "str | list[int]"

MAX_PROMPT_BYTES = 8_000_000


def token_ids(value: str | list[int]) -> list[int]:
    """Return the ids of a list such as ``1,2,3``; anything else is a usage error."""
    if isinstance(value, list):
        return value
    return list(integers(value, "token ids", least=0, digits=18))


def read_prompt(path: str) -> str:
    """Return the text of a file, or of stdin for ``-``, without a newline at its end.

    Raises:
        InputError: if it cannot be read, is too large, or is not UTF-8.
    """
    name = "stdin" if path == "-" else path
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_PROMPT_BYTES + 1)
    except OSError as exc:
        raise InputError(f"{name} could not be read: {exc.strerror}; give a file of UTF-8 text.") from exc
    if len(data) > MAX_PROMPT_BYTES:
        raise InputError(f"{name} is larger than {MAX_PROMPT_BYTES} bytes; give a shorter prompt.")
    try:
        text = without_mark(data.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise InputError(
            f"{name} is not UTF-8 at byte {exc.start}; convert it, for example with iconv."
        ) from exc
    return re.sub(r"\r?\n\Z", "", text)
