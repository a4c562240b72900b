"""The command ``gpt-onnx``: commands are imported when they are used, heavy packages when they run.

Exit codes: 0 done, 1 a clear error, 2 usage, 3 the numbers differ; ended by a signal, 128 and its number: 130
after ctrl-C, 143 after SIGTERM.

Nothing is imported here but what Python has loaded anyway, so that signals are understood from the start.
"""

from __future__ import annotations

import signal
import sys

from gpt_onnx._signals import ENDING

TYPE_CHECKING = False  # a type checker takes it for true; typing itself takes milliseconds
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

__all__ = ["main"]

SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a program."""
INTERRUPTED = SIGNALLED + signal.SIGINT
"""The exit code after ctrl-C; ``main`` puts another signal in its place."""


class Interrupts:
    """Raises KeyboardInterrupt at a signal that ends the program, and remembers it.

    An extension module that is interrupted while it is imported raises an ImportError in its place, which
    says nothing of the signal.
    """

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self.number = number
        raise KeyboardInterrupt

    @property
    def came(self) -> bool:
        """Whether there was one."""
        return self.number != 0

    def code(self, code: int) -> int:
        """Return the exit code of the program, whose commands know ctrl-C alone."""
        return SIGNALLED + self.number if self.came and code == INTERRUPTED else code

    def install(self) -> dict[int, Any]:
        """Handle every signal that would end the program, and return what handled it before.

        One that is ignored, as under nohup, or is somebody else's, is left alone.
        """
        usual = (signal.SIG_DFL, signal.default_int_handler)
        previous = {number: signal.getsignal(number) for number in ENDING}
        return {number: signal.signal(number, self) for number in ENDING if previous[number] in usual}


def _run(args: list[str] | None, interrupts: Interrupts, extra: dict[str, Any]) -> int:
    """Return the exit code; whatever is raised after a signal is its doing."""
    try:
        from gpt_onnx.cli._group import run

        return run(args, lambda: interrupts.came, **extra)
    except KeyboardInterrupt:
        pass
    except Exception:
        if not interrupts.came:
            raise
    by = "" if interrupts.number in (0, signal.SIGINT) else f" by {signal.Signals(interrupts.number).name}"
    try:  # noqa: SIM105  # contextlib would have to be imported
        print(f"Error: interrupted{by}; nothing was left half-written.", file=sys.stderr, flush=True)
    except OSError:
        pass
    return INTERRUPTED


def main(args: list[str] | None = None, **extra: Any) -> NoReturn:
    """Run the command line and exit."""
    interrupts = Interrupts()
    previous = interrupts.install()
    try:
        code = interrupts.code(_run(args, interrupts, extra))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    sys.exit(code)
