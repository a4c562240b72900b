"""Ctrl-C waits for the end of an import, and then is what it is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from gpt_onnx.runtime._interrupts import ctrl_c_held


def fail() -> None:
    raise ImportError("initialization failed")


def interrupted(rest: Callable[[], None]) -> None:
    """An import that goes on with ``rest`` after ctrl-C."""
    with ctrl_c_held():
        signal.raise_signal(signal.SIGINT)
        rest()


def test_ctrl_c_comes_after_the_import_and_not_within() -> None:
    done = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupted(lambda: done.append("imported"))
    assert done == ["imported"]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_is_told_rather_than_what_became_of_the_import() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(fail)


def test_an_import_that_fails_by_itself_says_so() -> None:
    with pytest.raises(ImportError, match="initialization failed"), ctrl_c_held():
        fail()


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ctrl_c_held():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_import_as_ever() -> None:
    done: list[str] = []

    def work() -> None:
        with ctrl_c_held():
            done.append("imported")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["imported"]
