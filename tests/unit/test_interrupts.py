"""Ctrl-C and its like wait for the end of an import or a deletion, and then are what they are."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from gpt_onnx._interrupts import interrupts_held


def fail() -> None:
    raise ImportError("initialization failed")


def interrupted(rest: Callable[[], None]) -> None:
    """An import that goes on with ``rest`` after ctrl-C."""
    with interrupts_held():
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
    with pytest.raises(ImportError, match="initialization failed"), interrupts_held():
        fail()


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_import_as_ever() -> None:
    done: list[str] = []

    def work() -> None:
        with interrupts_held():
            done.append("imported")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["imported"]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_with_a_handler_of_pythons_waits_too(name: str) -> None:
    number, told = getattr(signal, name), []
    before = signal.signal(number, lambda number, frame: told.append(number))
    try:
        with interrupts_held():
            signal.raise_signal(number)
            signal.raise_signal(signal.SIGINT)  # the second, which is lost
            assert told == []
        assert told == [number]
    finally:
        signal.signal(number, before)


def test_a_signal_that_ends_the_process_at_once_is_left_so() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with interrupts_held():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
