"""The standard streams, which may be closed, full, or read by nobody.

A closed one is opened on nothing: what is written to stdout or read from stdin fails with an OSError, as it
does on a full disk, and what goes to stderr is lost. (Python sets a closed one to None.)
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

import click

_CLOSED = (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))
"""Name, mode, and how the null device is opened for it: the wrong way round where use must fail."""


CONTROLS = {code: "\ufffd" for code in [*range(0x20), *range(0x7F, 0xA0)] if chr(code) not in "\n\t"}
"""Control characters, and what stands for them where a file must not move the cursor or set a title."""


def clean(value: object) -> str:
    """Return one line of printable text: a file must not move the cursor."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(value))


def one_line(message: str) -> str:
    """Return a message whose line breaks are told and not made: a name may have some."""
    return message.replace("\r", "\\r").replace("\n", "\\n")


def open_closed() -> None:
    """Open the standard streams that are closed; no file that is opened later takes their place."""
    for name, mode, flags in _CLOSED:
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            stream = open(descriptor, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def take_every_name() -> None:
    """Let stdout take the name of any folder: what its encoding lacks is written as a number."""
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_broken(stream: TextIO) -> bool:
    """Whether something was written to a stream that it did not take."""
    try:
        stream.flush()
    except (OSError, ValueError):
        return True
    return False


def drop(stream: TextIO) -> None:
    """Send a stream's output to nowhere, what it still holds too, so that Python can end in peace."""
    with contextlib.suppress(OSError, ValueError):  # a test's stream has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        stream.flush()


def say(message: str) -> None:
    """Write a line to stderr, if it takes any; a name out of a file moves no cursor."""
    try:
        click.echo(message.translate(CONTROLS), err=True)
    except OSError:
        drop(sys.stderr)
