"""Work on a thread of its own gives its result or its error to whoever asks."""

from __future__ import annotations

import threading

import pytest

from gpt_onnx._background import Background


def test_the_result_of_the_work_is_returned_as_often_as_it_is_asked_for() -> None:
    work = Background(lambda: threading.current_thread().name)
    assert work.result() == work.result() == "gpt-onnx-background"


def test_the_error_of_the_work_is_raised_where_the_result_is_asked_for() -> None:
    def fail() -> int:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        Background(fail).result()


def test_the_caller_goes_on_while_the_work_is_done() -> None:
    caller_came = threading.Event()
    work = Background(lambda: caller_came.wait(timeout=30))
    caller_came.set()
    assert work.result()
