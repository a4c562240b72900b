"""Arguments of Python calls, checked: a refusal is an InputError that names the argument.

    >>> as_integer("threads", 4, least=1)
    4

An integer may come from numpy; a bool, which Python counts among the integers, is none.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpt_onnx.errors import InputError


def shown(value: object) -> str:
    """Return how a value is written in Python, cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def as_integer(name: str, value: Any, *, least: int = 0, most: int | None = None) -> int:
    """Return an integer argument as an int.

    Raises:
        InputError: if it is no integer, or is out of its range.
    """
    is_bool = isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")  # numpy's has an index too
    number = None
    if not is_bool and hasattr(value, "__index__") and not getattr(value, "shape", ()):
        number = operator.index(value)
    if number is None or number < least or (most is not None and number > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"{name} is {shown(value)}; it must be an integer {bounds}.")
    return number


def as_flag(name: str, value: Any) -> bool:
    """Return an argument that must be True or False.

    Raises:
        InputError: if it is neither.
    """
    if not isinstance(value, bool):
        raise InputError(f"{name} is {shown(value)}; it must be True or False.")
    return value


def _is_encodable(text: str) -> bool:
    try:
        return bool(os.fsencode(text))
    except UnicodeEncodeError:
        return False


def as_path(name: str, value: Any) -> Path:
    """Return the path of a file or folder that was given as a string or as a path.

    Raises:
        InputError: if it is anything else, empty, or no path that a system could have.
    """
    is_path = isinstance(value, str | os.PathLike)
    text = os.fspath(value) if is_path else None
    if not isinstance(text, str) or not text or "\0" in text or not _is_encodable(text):
        raise InputError(f"{name} is {shown(value)}; it must be a path, as a string or a pathlib.Path.")
    return Path(text)


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that nobody reads: a misspelt one would be ignored in silence.

    Raises:
        InputError: with the first unknown option and all that there are.
    """
    known = tuple(known)
    for name in given:
        if name not in known:
            raise InputError(f"there is no option {name!r}; the options are {', '.join(known)}.")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 row", "2 rows"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
