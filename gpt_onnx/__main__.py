"""``python -m gpt_onnx`` is ``gpt-onnx``: the command line as a process of its own."""

from __future__ import annotations

import sys

from gpt_onnx.cli import SIGNALLED, main

TYPE_CHECKING = False  # a type checker takes it for true; typing itself takes milliseconds
if TYPE_CHECKING:
    from typing import NoReturn


def _leave(code: int) -> NoReturn:
    """End the process with a code, after what was registered for its end.

    Where ctrl-C passed through ``exec`` of a text, as dataclasses and namedtuples use it while modules are
    imported, Python ends by the signal instead, whatever ``sys.exit`` says (pythonrun.c,
    unhandled_keyboard_interrupt).
    """
    import atexit
    import os

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  # contextlib would have to be imported
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)


def program() -> NoReturn:
    """Run the command line and end the process."""
    try:
        main()
    except SystemExit as exc:
        if isinstance(exc.code, int) and exc.code > SIGNALLED:
            _leave(exc.code)
        raise


if __name__ == "__main__":
    program()
