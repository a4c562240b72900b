"""What a table of names leaves over, told so that the table can be mended from the message.

Names that differ in numbers alone are told once, as a pattern that a table could hold, each with what the
other side has of a like shape:

    h.{layer}.attn.k.weight [32, 32] in 2 layers (like blocks.{layer}.wk.weight)
"""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

PLACES = ("layer", "head")
"""What numbers in a name stand for, in the order in which they come."""
NEAREST = 3  # names of a like shape that are offered
LISTED = 8  # patterns that are told
LONGEST = 200  # characters of a name that are told

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


@dataclass(frozen=True, slots=True)
class Group:
    """Names of one shape that differ in numbers alone."""

    name: str
    """The one name, or the pattern of several."""
    shape: Shape
    count: int

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.name} {list(self.shape)}{times}"


def _generic(name: str) -> str:
    """Return a name with the numbers between its dots exchanged for places."""
    places = iter(PLACES)
    parts = [f"{{{next(places, '')}}}" if part.isdecimal() else part for part in name.split(".")]
    return ".".join(parts).replace("{}", "{number}")


def _told(name: str) -> str:
    """Return a name as a message shows it."""
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}..."


def groups_of(shapes: Shapes) -> list[Group]:
    """Gather names that differ in numbers alone, in their order."""
    found: dict[tuple[str, Shape], list[str]] = defaultdict(list)
    for name, shape in shapes.items():
        found[_generic(name), shape].append(name)
    return [
        Group(_told(pattern if len(names) > 1 else names[0]), shape, len(names))
        for (pattern, shape), names in found.items()
    ]


def _ranks(shape: Shape) -> Iterable[tuple[str, Callable[[Shape], bool]]]:
    """Yield how another shape may be like this one, the likest first."""
    yield "", lambda other: other == shape
    yield "transposed ", lambda other: other == shape[::-1]
    yield "", lambda other: math.prod(other) == math.prod(shape)
    yield "", lambda other: len(other) == len(shape) > 1 and (other[0] == shape[0] or other[-1] == shape[-1])


def nearest(group: Group, candidates: Iterable[Group]) -> list[str]:
    """Return what is nearest to a group: of the likest shape that there is, the likest names first."""
    candidates = list(candidates)
    for word, is_like in _ranks(group.shape):
        if like := [other for other in candidates if is_like(other.shape)]:
            like.sort(key=lambda other: -_likeness(group.name, other.name))
            return [f"{word}{other.name}" for other in like[:NEAREST]]
    return []


def _likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, name, other).ratio()


def listed(names: Shapes, others: Shapes) -> str:
    """Tell names with their shapes, and what the other side has of a like shape."""
    groups, candidates = groups_of(names), groups_of(others)
    told = []
    for group in groups[:LISTED]:
        near = nearest(group, candidates)
        told.append(f"{group}" + (f" like {', '.join(near)}" if near else ""))
    more = sum(group.count for group in groups[LISTED:])
    return "; ".join(told) + (f"; and {more} more" if more else "")
