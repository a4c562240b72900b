"""What a file for other clients says, beside what it must say.

compare({"model": {"layers": 8}}, {"model": {"layers": 9}})     # BundleError: model.layers is 8 and must be 9
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gpt_onnx.bundle import Bundle
from gpt_onnx.bundle._codec import parse_object
from gpt_onnx.bundle._hashing import read_bounded
from gpt_onnx.bundle._names import AGAIN, shorten
from gpt_onnx.bundle._rules import COUNT, FLAG, NUMBER, Rule, same
from gpt_onnx.errors import BundleError

MAX_BYTES = 1 << 20
QUOTE = "'"

_KINDS: tuple[tuple[type, Rule], ...] = (
    (bool, FLAG),
    (int, COUNT),
    (float, NUMBER),
    (dict, ("an object", lambda value: isinstance(value, dict))),
)
"""What stands in a place of the user's, by what an export writes there; true is an integer in Python."""


def read_text(bundle: Bundle, name: str) -> str:
    """Return the content of a file for other clients.

    Raises:
        BundleError: if the bundle lacks it, or it is no text.
    """
    if name not in bundle.manifest.files:
        raise BundleError(f"{bundle.path} has no {name}, which other clients read; {AGAIN}.")
    try:
        return str(read_bounded(bundle.file(name), MAX_BYTES), "utf-8")
    except UnicodeDecodeError as exc:
        raise BundleError(f"{bundle.file(name)} is not UTF-8; {AGAIN}.") from exc


def read_values(bundle: Bundle, name: str) -> dict[str, Any]:
    """Return the object of a file for other clients.

    Raises:
        BundleError: if the bundle lacks it, or it is not JSON.
    """
    content = read_text(bundle, name).encode()
    try:
        return parse_object(content)
    except BundleError as exc:
        raise BundleError(f"{bundle.file(name)} cannot be understood: {exc}") from exc


def _check_free(found: Any, expected: Any, place: str) -> None:
    """See that a value that is the user's is of the kind that is written there, or null.

    Raises:
        BundleError: if it is of another kind.
    """
    meaning, holds = next(rule for kind, rule in _KINDS if isinstance(expected, kind))
    if not (found is None or holds(found)):
        raise BundleError(f"{place} is {shorten(found)}; it must be {meaning}: correct it, or {AGAIN}.")


def _check_closed(found: dict[str, Any], expected: dict[str, Any], place: str) -> None:
    if more := sorted(found.keys() - expected.keys()):
        raise BundleError(
            f"it has {place}.{shorten(more[0]).strip(QUOTE)}, which an export does not write there; take it "
            f"out, or {AGAIN}."
        )


def _is_within(place: str, places: Collection[str]) -> bool:
    return any(place == other or place.startswith(f"{other}.") for other in places)


def compare(
    found: Any,
    expected: Any,
    free: Collection[str] = (),
    closed: Collection[str] = (),
    place: str = "",
) -> None:
    """See that ``found`` says all that ``expected`` does; what it says besides is the user's own.

    Args:
        found: What a file holds.
        expected: What is to be in it.
        free: Places, as "search.top_k", whose values may be any of their kind, or missing.
        closed: Places, as "model.decoder", in which nothing may be said besides.
        place: Where the two are.

    Raises:
        BundleError: for the first value that is missing, another, or not to be there.
    """
    if place in free:
        _check_free(found, expected, place)
    elif isinstance(expected, dict) and isinstance(found, dict):
        if _is_within(place, closed):
            _check_closed(found, expected, place)
        for key, value in expected.items():
            inner = f"{place}.{key}".removeprefix(".")
            if key not in found and inner not in free:
                raise BundleError(f"it lacks {inner}, which must be {shorten(value)}; {AGAIN}.")
            compare(found.get(key), value, free, closed, inner)
    elif not same(found, expected):
        raise BundleError(
            f"{place} is {shorten(found)} and must be {shorten(expected)}; correct it, or {AGAIN}."
        )
