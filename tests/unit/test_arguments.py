"""What arguments of Python calls are taken for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.errors import InputError
from gpt_onnx.runtime._arguments import as_flag, as_integer, as_path, check_names, counted, shown


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.array(3)])
def test_an_integer_of_python_or_numpy_is_an_int(value: Any) -> None:
    found = as_integer("count", value, least=3, most=3)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize("value", [2, 5, True, np.True_, 3.0, np.float32(3), "3", None, np.array([3])])
def test_anything_else_is_named(value: Any) -> None:
    with pytest.raises(InputError, match=r"count is .*; it must be an integer from 3 to 4\.$"):
        as_integer("count", value, least=3, most=4)


def test_an_integer_too_long_to_write_is_refused_too() -> None:
    with pytest.raises(InputError, match=r"count is a int; it must be an integer of at least 0\."):
        as_integer("count", -(10**5000))


def test_a_flag_is_a_bool() -> None:
    assert as_flag("on", True)
    for value in (1, 0, "no", None):
        with pytest.raises(InputError, match="on is"):
            as_flag("on", value)


def test_a_path_may_be_a_string_or_a_path() -> None:
    assert as_path("path", "a/b") == as_path("path", Path("a/b")) == Path("a/b")


@pytest.mark.parametrize("value", ["", "a\0b", "\ud800", b"a", 3, None])
def test_what_no_system_has_is_no_path(value: Any) -> None:
    with pytest.raises(InputError, match="it must be a path, as a string"):
        as_path("path", value)


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    check_names(["a"], ["a", "b"])
    with pytest.raises(InputError, match=r"there is no option 'c'; the options are a, b\."):
        check_names({"a": 1, "c": 2}, ["a", "b"])


def test_nouns_follow_their_number() -> None:
    assert [counted(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


def test_long_values_are_cut() -> None:
    assert len(shown("x" * 1000)) == 80
