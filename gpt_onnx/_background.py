"""Work on a thread of its own, while the caller does something else.

    hashing = Background(lambda: hash_file(path))
    ...                                     # the caller's own work
    entry = hashing.result()                # waits; raises what the work raised

It pays where the work leaves Python's lock free: hashing, and what ONNX Runtime does. (Not
concurrent.futures: that imports logging, and its threads outlive the work.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class Background(Generic[T]):
    """Starts ``work`` at once. A result that nobody asks for is dropped, and so is an error."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="gpt-onnx-background")
        self._thread.start()

    def _run(self) -> None:
        assert self._work is not None
        try:
            self._result = self._work()
        except BaseException as exc:  # the caller gets it, whatever it is
            self._error = exc
        finally:
            self._work = None  # with all that it holds

    def result(self) -> T:
        """Wait for the work and return its result; ctrl-C interrupts the waiting, not the work."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)
