"""Names that differ in numbers alone, gathered under one pattern that a table of names could hold.

    >>> [str(group) for group in groups_of({"stage0.mix.weight": (64, 64), "stage1.mix.weight": (64, 64)})]
    ['stage{layer}.mix.weight [64, 64] (2 times)']

The first number that changes is the layer's and the second is the head's, where a head can have that shape;
``ln1`` and ``ln2``, which do not count from 0, are two names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

PLACES = ("layer", "head")
"""What numbers in a name stand for, in the order in which they come."""
NUMBER = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]{0,5})(?![0-9A-Za-z])")
NUMBERS = 6  # of one name that are looked at
LONGEST = 200  # characters of a name that are told
APART = ("", ".", "/")  # what stands about a number that is a word of its own

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]


def told(name: str) -> str:
    """Return a name as a message shows it."""
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}..."


@dataclass(frozen=True, slots=True)
class Group:
    """Names of one shape that differ in numbers alone."""

    name: str
    """The one name, or the pattern of several."""
    shape: Shape
    count: int

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{told(self.name)} {list(self.shape)}{times}"


def width_of(shapes: Shapes) -> int:
    """Return the size that most matrices have, which is the model's width; 0 where there is no matrix."""
    sizes = Counter(size for shape in shapes.values() if len(shape) == 2 for size in set(shape))
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


@dataclass(frozen=True, slots=True)
class _Family:
    """Names of one shape with the same words."""

    words: Sequence[str]
    """What stands before, between and behind the numbers."""
    numbers: Sequence[Sequence[str]]
    """Those of each name."""
    shape: Shape

    def values(self, slot: int) -> dict[str, None]:
        """Return the numbers that stand in one place, each once."""
        return dict.fromkeys(numbers[slot] for numbers in self.numbers)

    def by_value(self, slot: int) -> Iterator[_Family]:
        """Yield the names with each number in one place."""
        rows: dict[str, list[Sequence[str]]] = defaultdict(list)
        for row in self.numbers:
            rows[row[slot]].append(row)
        for numbers in rows.values():
            yield _Family(self.words, numbers, self.shape)

    def may_vary(self, slot: int) -> bool:
        """Whether numbers that change here count something; ln1 and ln2 are two names, not a count."""
        values = {int(value) for value in self.values(slot)}
        before, behind = self.words[slot][-1:], self.words[slot + 1][:1]
        if before in APART and behind in APART and self.words[slot]:
            return True
        return values == set(range(len(values)))

    def are_heads(self, slot: int) -> bool:
        """Whether the word before the numbers here says that they are heads'."""
        return "head" in re.split(r"[./]", self.words[slot].rstrip("./"))[-1].lower()

    def may_be_heads(self, slot: int, width: int) -> bool:
        """Whether the numbers here may be those of heads: by the word before them, or by the shape."""
        small = not width or min((self.shape[:1] + self.shape[-1:]), default=0) < width
        return self.are_heads(slot) or small

    def place(self, slot: int, taken: Collection[str], width: int) -> str | None:
        """Return what the numbers here stand for; None where they count nothing."""
        left = [place for place in PLACES if place not in taken]
        if not left or not self.may_vary(slot):
            return None
        place = "head" if "head" in left and self.are_heads(slot) else left[0]
        return place if place == "layer" or self.may_be_heads(slot, width) else None

    def name(self, places: Mapping[int, str]) -> str:
        """Return the pattern, or the name where nothing changes."""
        numbers = [
            f"{{{places[slot]}}}" if slot in places else number for slot, number in enumerate(self.numbers[0])
        ]
        between = zip([*numbers, ""], self.words[1:] or [""], strict=False)
        return self.words[0] + "".join(number + word for number, word in between)


def _groups(family: _Family, width: int) -> Iterator[Group]:
    """Yield a family as one pattern, or as several where numbers change that count nothing."""
    places: dict[int, str] = {}
    for slot in range(len(family.numbers[0])):
        if len(family.values(slot)) == 1:
            continue
        place = family.place(slot, places.values(), width)
        if place is None:
            for part in family.by_value(slot):
                yield from _groups(part, width)
            return
        places[slot] = place
    yield Group(family.name(places), family.shape, len(family.numbers))


def groups_of(shapes: Shapes, width: int | None = None) -> list[Group]:
    """Gather names that differ in numbers alone, in their order.

    Args:
        shapes: The names.
        width: The model's; None to find it in the shapes.
    """
    found: dict[tuple[tuple[str, ...], Shape], list[list[str]]] = defaultdict(list)
    for name, shape in shapes.items():
        words = tuple(NUMBER.split(name, maxsplit=NUMBERS))
        found[words, shape].append(NUMBER.findall(name)[:NUMBERS])
    width = width_of(shapes) if width is None else width
    return [
        group
        for (words, shape), numbers in found.items()
        for group in _groups(_Family(words, numbers, shape), width)
    ]
