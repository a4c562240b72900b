"""Ctrl-C while an extension module is imported.

    with ctrl_c_held():
        import onnxruntime

Interrupted on its way, such a module raises an ImportError ("initialization failed"), which looks like a
package that is missing or broken, and another attempt in the same process may fail for ever.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def ctrl_c_held() -> Iterator[None]:
    """Deliver a ctrl-C that comes within to its handler afterwards.

    Only in the main thread, which alone gets signals, and only where a handler of Python's waits for it.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if came:
            previous(signal.SIGINT, came[0])
