"""Work that is not interrupted: ctrl-C and the other signals that end a process wait for its end.

    with interrupts_held():
        import onnxruntime

Interrupted on its way, an extension module raises an ImportError ("initialization failed"), which looks like
a package that is missing or broken, and another attempt in the same process may fail for ever. And a folder
that is half made or half deleted would stay behind.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from gpt_onnx._signals import ENDING

Handler = Callable[[int, FrameType | None], object]


def handlers_in_force() -> dict[int, Handler]:
    """Return Python's handlers of the signals that end a process.

    Only the main thread gets signals. One that is ignored, or that ends the process at once, has none.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    found = {number: signal.getsignal(number) for number in ENDING}
    return {number: handler for number, handler in found.items() if callable(handler)}


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Deliver a signal that comes within to its handler afterwards; of several, the first."""
    previous = handlers_in_force()
    came: list[tuple[int, FrameType | None]] = []
    for number in previous:
        signal.signal(number, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if came:
            number, frame = came[0]
            previous[number](number, frame)
