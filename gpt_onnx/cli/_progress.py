"""How far a command is, on stderr: bars on a terminal, and a line a stage in a log.

    with progress_bars("read") as show:
        show("write", 3, 10)        # in a log: "6 s: writing weights"

A log gets nothing of a command that is done within WAIT_S.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpt_onnx.cli._console import is_quiet

Show = Callable[[str, int, int], None]
"""Told a step's name, how much of it is done, and how much there is."""

WAIT_S = 5.0
"""What is done sooner needs no sign."""
STAGES: Mapping[str, str] = {
    "read": "reading the source",
    "trace": "tracing the graph",
    "activations": "looking at activations",
    "calibrate": "calibrating weights",
    "write": "writing weights",
    "hash": "hashing files",
    "check": "comparing with PyTorch",
    "fp32": "predicting in fp32",
    "quality": "measuring quality",
    "load": "loading the bundle",
    "tokens": "predicting the text",
    "verify": "verifying",
    "compare": "comparing with the source",
    "measure": "measuring",
    "prepare": "preparing the text",
    "train": "training",
    "build": "building the site",
}
"""The words for a step."""


class StageLines:
    """Says each stage once, at its beginning, from WAIT_S after the first one began."""

    def __init__(self, first: str, write: Callable[[str], None]) -> None:
        self._begun, self._stage, self._said = time.monotonic(), first, ""
        self._write = write

    def show(self, step: str, done: int, total: int) -> None:
        """Take notice of a step."""
        self._stage = step
        if time.monotonic() - self._begun >= WAIT_S:
            self.say()

    def say(self) -> None:
        """Say the stage at hand, unless it was said."""
        if self._said != self._stage:
            self._said = self._stage
            self._write(f"{time.monotonic() - self._begun:,.0f} s: {STAGES.get(self._stage, self._stage)}\n")


def _writer() -> Callable[[str], None]:
    """Return what writes to the stderr of now: while a module is traced, sys.stderr is another one."""
    stream = sys.stderr

    def write(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # full, or closed
            stream.write(line)
            stream.flush()

    return write


@contextlib.contextmanager
def stage_lines(first: str, *, watched: bool = True) -> Iterator[Show | None]:
    """Give a function that says each stage on a stderr that is no terminal; None where nothing is to be said.

    Args:
        first: The stage that begins now.
        watched: Whether a thread looks after WAIT_S which stage it is; else the next call does.
    """
    if is_quiet() or sys.stderr.isatty():
        yield None
        return
    lines = StageLines(first, _writer())
    timer = threading.Timer(WAIT_S, lines.say)
    timer.daemon = True
    if watched:
        timer.start()
    try:
        yield lines.show
    finally:
        timer.cancel()


@contextlib.contextmanager
def progress_bars(first: str, *, transient: bool = False) -> Iterator[Show | None]:
    """Give a function that shows a bar for each step on a terminal, and says it elsewhere; None if quiet.

    Args:
        first: The stage that begins now.
        transient: Whether bars go when all is done.
    """
    if is_quiet() or not sys.stderr.isatty():
        with stage_lines(first) as show:
            yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # The stream of now: while a module is traced, sys.stderr is another one, and bars go on.
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description:>6}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=transient) as bars:
        tasks: dict[str, Any] = {}

        def show_bar(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield show_bar
