"""Bars on stderr for steps that take a while, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpt_onnx.cli._console import is_quiet

Show = Callable[[str, int, int], None]
"""Told a step's name, how much of it is done, and how much there is."""


@contextlib.contextmanager
def progress_bars() -> Iterator[Show | None]:
    """Give a function that shows a bar for each step, on a terminal; elsewhere None."""
    if is_quiet() or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # The stream of now: while a module is traced, sys.stderr is another one, and bars go on.
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description:>6}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield show
