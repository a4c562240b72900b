"""What a field of a manifest may hold: rules, and how one that is broken is told.

check_fields(record, {"bits": number_of((4, 8)), "quantizer": WORD}, "quantization.")
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from gpt_onnx.bundle._names import fault_in_name, shorten
from gpt_onnx.errors import BundleError

Rule = tuple[str, Callable[[Any], bool]]


def is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def is_text(value: object) -> bool:
    """Whether UTF-8 can hold ``value``: a string without halves of surrogate pairs."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_number(value: object) -> bool:
    """Whether ``value`` is a number that float64 can hold; true is none."""
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) is float and math.isfinite(value)


def same(said: object, expected: object) -> bool:
    """Whether two values of JSON are equal; true is not 1, and where an integer must be, 3.0 is not 3."""
    if isinstance(said, dict) and isinstance(expected, dict):
        return said.keys() == expected.keys() and all(same(said[key], expected[key]) for key in said)
    if isinstance(said, list) and isinstance(expected, list):
        return len(said) == len(expected) and all(map(same, said, expected))
    kinds = (type(said), type(expected))
    return said == expected and (bool in kinds) is (kinds == (bool, bool)) and kinds != (float, int)


def is_plain_json(value: object, depth: int = 8) -> bool:
    """Whether JSON can hold ``value`` and give it back equal; at most ``depth`` levels deep."""
    if value is None or isinstance(value, bool) or is_text(value):
        return True
    if isinstance(value, int):
        return abs(value) < 2**63
    if isinstance(value, float):
        return math.isfinite(value)
    if depth == 0 or not isinstance(value, list | dict):
        return False
    if isinstance(value, list):
        return all(is_plain_json(item, depth - 1) for item in value)
    return all(is_text(key) and is_plain_json(item, depth - 1) for key, item in value.items())


def pattern(expression: str, meaning: str) -> Rule:
    compiled = re.compile(expression, re.ASCII)
    return meaning, lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def choice(choices: tuple[str, ...]) -> Rule:
    return f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices


def number_of(choices: tuple[int, ...]) -> Rule:
    meaning = f"one of {', '.join(str(choice) for choice in choices)}"
    return meaning, lambda value: type(value) is int and value in choices


def optional(rule: Rule) -> Rule:
    meaning, holds = rule
    return f"{meaning}, or null", lambda value: value is None or holds(value)


def texts_to(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: object) -> bool:
        return isinstance(value, dict) and all(is_text(k) and holds(v) for k, v in value.items())

    return check


COUNT: Rule = ("an integer of at least 0", is_count)
POSITIVE: Rule = ("an integer of at least 1", lambda value: is_count(value) and value > 0)
NUMBER: Rule = ("a finite number", is_number)
SIZE: Rule = ("a number of at least 0", lambda value: is_number(value) and value >= 0)
TEXT: Rule = ("a string", is_text)
FLAG: Rule = ("true or false", lambda value: type(value) is bool)
WORD = pattern(r"[a-z0-9][a-z0-9_.-]{0,63}", "a short word in lower case")
SHA256 = pattern(r"[0-9a-f]{64}", "64 hexadecimal digits in lower case")
FILE: Rule = ("the name of a file", lambda value: isinstance(value, str) and fault_in_name(value) is None)
NAME: Rule = (
    "one line of at most 200 printable characters",
    lambda value: isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable(),
)


def check_fields(record: Any, rules: Mapping[str, Rule], prefix: str = "") -> None:
    """Raise a BundleError for the first field of ``record`` that breaks its rule."""
    for name, (meaning, holds) in rules.items():
        if not holds(value := getattr(record, name)):
            raise BundleError(f"{prefix}{name} is {shorten(value)}; it must be {meaning}.")
