"""What commands that answer on a terminal share: safe output, plain warnings, and signals as requests."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from gpt_onnx._interrupts import handlers_in_force
from gpt_onnx._signals import ENDING
from gpt_onnx.cli import INTERRUPTED as INTERRUPTED
from gpt_onnx.cli._streams import CONTROLS, drop, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

MIN_WIDTH = 80  # columns of a table


class Answer:
    """Writes an answer to stdout as it comes.

    On a terminal, control characters are replaced: a model must not move the cursor or set a title.
    Characters that the output's encoding lacks are replaced too. (Not click.echo, which takes colour codes
    out of what goes to a file: an answer goes there as it is.)
    """

    def __init__(self) -> None:
        self.written = False
        self._clean = sys.stdout.isatty()
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")

    def write(self, text: str) -> None:
        """Write and flush."""
        if text:
            self.written = True
            sys.stdout.write(text.translate(CONTROLS) if self._clean else text)
            sys.stdout.flush()

    def end(self) -> None:
        """End the line, if anything was written."""
        if self.written:
            self.write("\n")


def is_quiet() -> bool:
    """Whether the command was given ``gpt-onnx -q``."""
    context = click.get_current_context(silent=True)
    return bool(context is not None and context.find_root().params.get("quiet"))


def note(message: str) -> None:
    """Say something beside the answer, on stderr, unless told to be quiet."""
    if not is_quiet():
        say(message)


def table_console(width: int | None = None) -> Console:
    """Return a console on stdout for tables, wide enough that none loses a number on a narrow terminal.

    Brackets in the name of a folder are no markup, and colons no emoji.
    """
    from rich.console import Console

    plain = partial(Console, markup=False, emoji=False, highlight=False)
    console = plain(width=width)
    return console if console.width >= MIN_WIDTH else plain(width=MIN_WIDTH)


@contextmanager
def printing(width: int | None = None) -> Iterator[Console]:
    """Give a console, and print what was printed to it on stdout, without blanks at the ends of lines.

    Args:
        width: Columns; None: the terminal's.
    """
    console = table_console(width)
    with console.capture() as capture:
        yield console
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_tables(*tables: Table, width: int | None = None) -> None:
    """Print tables on stdout, an empty line between them; see ``printing``."""
    with printing(width) as console:
        for index, table in enumerate(tables):
            console.print("\n" * (index > 0), end="")
            console.print(table)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as one line on stderr, without the place in the code where they arose."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        note(f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


Deliver = Callable[[], object]
"""Gives a signal to the handler that was there before."""


@contextmanager
def _handling(signals: Collection[int], handle: Callable[[Deliver], None]) -> Iterator[None]:
    """Have signals call ``handle``, but those that are to be ignored, as under nohup."""
    previous = {number: old for number, old in handlers_in_force().items() if number in signals}

    def handler(number: int, frame: FrameType | None) -> None:
        handle(partial(previous[number], number, frame))

    for number in previous:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


@contextmanager
def cancel_request() -> Iterator[Callable[[], bool]]:
    """Turn the first ctrl-C into a request that the work asks for; the second interrupts."""
    requested = False

    def handle(deliver: Deliver) -> None:
        nonlocal requested
        if requested:
            deliver()
        requested = True

    with _handling((signal.SIGINT,), handle):
        yield lambda: requested


@contextmanager
def whole_writes() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Give a function that calls another one to its end before a signal interrupts.

    Otherwise a piece may be written and not counted, or counted and not written. A second signal interrupts
    all the same: the reader of a pipe may hang.
    """
    writing = False
    pending: Deliver | None = None

    def handle(deliver: Deliver) -> None:
        nonlocal pending
        if pending or not writing:
            deliver()
        pending = deliver

    def whole(write: Callable[[], None]) -> None:
        nonlocal writing
        writing = True
        write()
        writing = False
        if pending:
            pending()

    with _handling(ENDING, handle):
        yield whole


def leave_pipe() -> NoReturn:
    """End without a complaint: the reader of our output has gone, as ``head`` does."""
    drop(sys.stdout)
    sys.exit(0)
