"""The command ``gpt-onnx``: commands are imported when they are used, heavy packages when they run.

Exit codes: 0 done, 1 a clear error, 2 usage, 3 the numbers differ, 130 interrupted.

Nothing is imported here but what Python has loaded anyway, so that ctrl-C is understood from the start.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False  # a type checker takes it for true; typing itself takes milliseconds
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

__all__ = ["main"]

INTERRUPTED = 130  # as a shell reports it


class CtrlC:
    """Raises KeyboardInterrupt at ctrl-C, and remembers it.

    An extension module that is interrupted while it is imported raises an ImportError in its place, which
    says nothing of ctrl-C.
    """

    def __init__(self) -> None:
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self.came = True
        raise KeyboardInterrupt


def _run(args: list[str] | None, ctrl_c: CtrlC, extra: dict[str, Any]) -> int:
    """Return the exit code; whatever is raised after ctrl-C is its doing."""
    try:
        from gpt_onnx.cli._group import run

        return run(args, lambda: ctrl_c.came, **extra)
    except KeyboardInterrupt:
        pass
    except Exception:
        if not ctrl_c.came:
            raise
    try:  # noqa: SIM105  # contextlib would have to be imported
        print("Error: interrupted; nothing was left half-written.", file=sys.stderr, flush=True)
    except OSError:
        pass
    return INTERRUPTED


def main(args: list[str] | None = None, **extra: Any) -> NoReturn:
    """Run the command line and exit."""
    ctrl_c, previous = CtrlC(), signal.getsignal(signal.SIGINT)
    if previous is signal.default_int_handler:  # otherwise it is ignored, or somebody else's
        signal.signal(signal.SIGINT, ctrl_c)
    try:
        code = _run(args, ctrl_c, extra)
    finally:
        if previous is signal.default_int_handler:
            signal.signal(signal.SIGINT, previous)
    sys.exit(code)
