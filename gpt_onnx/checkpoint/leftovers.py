"""What a table of names leaves over, told so that the table can be mended from the message.

Names that differ in numbers alone are told once, as a pattern that a table could hold, each with what the
other side has of a like shape:

    h.{layer}.attn.k.weight [32, 32] (2 times) like blocks.{layer}.wk.weight
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence

from gpt_onnx.checkpoint.patterns import Group, Shape, Shapes, groups_of, told, width_of

__all__ = ["LINES", "Group", "Shape", "Shapes", "below", "groups_of", "listed", "nearest"]

NEAREST = 3  # names of a like shape that are offered
LISTED = 8  # patterns that are told in a sentence
LINES = 20  # patterns that are told below one
FEW = 2  # patterns that need no line of their own


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
            return [f"{word}{told(other.name)}" for other in like[:NEAREST]]
    return []


def _likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, told(name), told(other)).ratio()


def listed(names: Shapes, others: Shapes) -> str:
    """Tell names with their shapes, and what the other side has of a like shape."""
    width = width_of({**names, **others})
    groups, candidates = groups_of(names, width), groups_of(others, width)
    lines = []
    for group in groups[:LISTED]:
        near = nearest(group, candidates)
        lines.append(f"{group}" + (f" like {', '.join(near)}" if near else ""))
    more = sum(group.count for group in groups[LISTED:])
    return "; ".join(lines) + (f"; and {more} more" if more else "")


def below(lines: Sequence[str]) -> str:
    """Return a list as part of a sentence where it is short, else with a line for each."""
    return "; ".join(lines) if len(lines) <= FEW else "\n  " + ";\n  ".join(lines)
