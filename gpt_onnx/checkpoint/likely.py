"""Which weight of ours a tensor of an unknown name may be, by its shape and by what kind of tensor it is.

    likely = Likely.of(shapes, {"tokens.weight": "wte.weight"})
    likely.names(group)    # ["h.{layer}.attn.c_proj.weight", "h.{layer}.attn.q.weight"]

These are offers, from the likeliest on; only the program that stored the tensor can say which is right.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpt_onnx.checkpoint.patterns import Group, Shape, Shapes, groups_of, width_of

OFFERED = 5  # names
LAYER = "h.{layer}"
NORMS = (f"{LAYER}.ln_1", f"{LAYER}.ln_2")
NEEDED = (
    "wte.weight",
    f"{LAYER}.ln_1.weight",
    f"{LAYER}.attn.c_attn.weight",
    f"{LAYER}.attn.c_proj.weight",
    f"{LAYER}.ln_2.weight",
    f"{LAYER}.mlp.c_fc.weight",
    f"{LAYER}.mlp.c_proj.weight",
)
"""What every GPT has."""
PACKED = f"{LAYER}.attn.c_attn"
WHOLE = frozenset({f"{PACKED}.weight", f"{LAYER}.attn.qkv_by_head.weight"})
PARTS = frozenset(
    f"{LAYER}.attn.{part}.weight" for part in ("q", "k", "v", "kv", "q.{head}", "k.{head}", "v.{head}")
)
BIASES = ("bias", "beta", "b", "offset", "shift")
WEIGHTS = ("weight", "gamma", "g", "w", "scale", "kernel")
SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("query", "queries"), "q"),
    **dict.fromkeys(("key", "keys"), "k"),
    **dict.fromkeys(("value", "values"), "v"),
    **dict.fromkeys(("up", "in", "in_proj"), "fc"),
    **dict.fromkeys(("projection", "o", "out"), "proj"),
    **dict.fromkeys(("ff", "ffn", "ffwd"), "mlp"),
    **dict.fromkeys(("norm", "layernorm", "rmsnorm"), "ln"),
}
SILENT = frozenset({"weight", "bias", "h", "layer", "c", "to", ""})
"""Words that tell nothing of a part."""
GATE = f"{LAYER}.mlp.c_gate"
TURNED = "transposed "
LARGEST = 3  # queries, keys and values in one matrix have at most so many widths of rows

Fits = Callable[[int, int, int], bool]
IN_LAYERS: tuple[tuple[str, Fits], ...] = (
    (f"{LAYER}.attn.c_proj", lambda rows, columns, width: rows == columns == width),
    (f"{LAYER}.attn.q", lambda rows, columns, width: rows == columns == width),
    (f"{LAYER}.attn.k", lambda rows, columns, width: rows <= columns == width),
    (f"{LAYER}.attn.v", lambda rows, columns, width: rows <= columns == width),
    (f"{LAYER}.attn.kv", lambda rows, columns, width: rows < width == columns or rows == 2 * width),
    (PACKED, lambda rows, columns, width: width == columns < rows <= LARGEST * width),
    (f"{LAYER}.attn.qkv_by_head", lambda rows, columns, width: columns == width and rows == 3 * width),
    (f"{LAYER}.mlp.c_fc", lambda rows, columns, width: width == columns < rows),
    (f"{LAYER}.mlp.c_gate", lambda rows, columns, width: width == columns < rows),
    (f"{LAYER}.mlp.c_proj", lambda rows, columns, width: rows == width < columns),
)
"""Matrices of a layer: our name, and which rows and columns one of a width has."""
IN_HEADS: tuple[tuple[str, Fits], ...] = tuple(
    (f"{LAYER}.attn.{part}.{{head}}", lambda rows, columns, width: rows < columns == width) for part in "qkv"
)
ALONE: tuple[tuple[str, Fits], ...] = tuple(
    (name, lambda rows, columns, width: columns == width) for name in ("wte", "wpe", "lm_head")
)


def _stem(name: str) -> str:
    return re.sub(r"[./_]?[^./_]*$", "", name)


def _last(name: str) -> str:
    return re.split(r"[./_]", name.lower())[-1]


def _words(name: str) -> frozenset[str]:
    """Return the words of a name, in our spelling of them."""
    words = re.split(r"[^a-z]+", re.sub(r"\{\w+\}", "", name.lower()))
    return frozenset(SYNONYMS.get(word, word) for word in words) - SILENT


def _is_in_layer(group: Group) -> bool | None:
    """Whether a pattern is of a layer's parts; None where a number may be the layer's."""
    if "{layer}" in group.name:
        return True
    return None if re.search("[0-9]", group.name) else False


@dataclass(frozen=True, slots=True)
class Likely:
    """See the module."""

    width: int
    known: Mapping[str, str]
    """Patterns that are settled, and our names for them."""
    settled: frozenset[str]
    """Our names that nothing else can have."""
    matrices: Mapping[str, Group]
    """By what stands before the last word of their names."""
    layered: Mapping[Shape, int]
    """Shapes of matrices in layers, and how many patterns have each."""
    are_turned: bool
    """Whether layers store a wide matrix and no tall one of that size: (in, out) is how they have all."""
    tables: Mapping[Shape, Sequence[str]]
    """Shapes of matrices outside of the layers, and the names of each."""
    most_rows: int
    """Of the largest of them."""

    @classmethod
    def of(cls, stored: Shapes, known: Mapping[str, str]) -> Likely:
        """Look at all that is stored, and at the patterns whose names are settled."""
        width, settled = width_of(stored), frozenset(known.values())
        if not WHOLE.isdisjoint(settled):
            settled |= PARTS
        elif not PARTS.isdisjoint(settled):
            settled |= WHOLE
        matrices = [group for group in groups_of(stored, width) if len(group.shape) == 2]
        layered = Counter(one.shape for one in matrices if _is_in_layer(one) is not False)
        tables: dict[Shape, list[str]] = defaultdict(list)
        for one in matrices:
            if _is_in_layer(one) is False and width in one.shape:
                tables[one.shape].append(one.name)
        return cls(
            width=width,
            known=known,
            settled=settled,
            matrices={_stem(group.name): group for group in matrices},
            layered=layered,
            are_turned=any(one[0] == width < one[1] and one[::-1] not in layered for one in layered),
            tables=tables,
            most_rows=max((max(shape) for shape in tables), default=0),
        )

    @property
    def needed(self) -> list[str]:
        """Return our names that every GPT has, and that nothing is named as."""
        return [name for name in NEEDED if name not in self.settled]

    def _is_fitting(self, name: str, shape: Shape) -> bool:
        """Whether nothing else that is stored speaks against it."""
        if name == PACKED and shape[0] != LARGEST * self.width:
            return shape[::-1] not in self.layered  # beside its transpose, it is the network's
        return name != GATE or max(self.layered.get(one, 0) for one in (shape, shape[::-1])) > 1

    def _fitting(self, kinds: Iterable[tuple[str, Fits]], shape: Shape) -> list[str]:
        found = (name for name, fits in kinds if fits(shape[0], shape[1], self.width))
        return [name for name in found if self._is_fitting(name, shape)]

    def _tables(self, group: Group) -> tuple[tuple[str, Fits], ...]:
        if "{head}" in group.name:
            return IN_HEADS
        inside = _is_in_layer(group)
        return (*(IN_LAYERS if inside is not False else ()), *(() if inside else ALONE))

    def _matrices(self, group: Group) -> list[str]:
        shape, kinds = group.shape, self._tables(group)
        direct = self._fitting(kinds, shape)
        turned = [f"{TURNED}{name}" for name in self._fitting(kinds, shape[::-1]) if shape[0] != shape[1]]
        return (turned or direct) if self.are_turned else (direct or turned)

    def _order_of_tables(self, group: Group) -> tuple[str, ...]:
        """Return what a matrix outside of the layers is, by its place in the file and its rows."""
        same = self.tables.get(group.shape, ())
        if len(same) > 1:
            return ("wte", "lm_head") if group.name == same[0] else ("lm_head", "wte")
        return ("wte", "wpe", "lm_head") if max(group.shape) == self.most_rows else ("wpe", "wte")

    def _vectors(self, group: Group) -> list[str]:
        """Return the parts that a vector may belong to: its matrix's, where it has one; else the norms."""
        size, inside = group.shape[-1], _is_in_layer(group)
        beside = self.matrices.get(_stem(group.name))
        if beside is not None and beside.name in self.known:
            return [_stem(self.known[beside.name])]
        if beside is not None:
            return [name.removeprefix(TURNED) for name in self._matrices(beside)]
        if size != self.width:
            return [] if inside else ["lm_head"]
        return [*(NORMS if inside is not False else ()), *(() if inside else ("ln_f",))]

    def _parts(self, group: Group) -> list[str]:
        if len(group.shape) == 2 and self.width:
            parts = self._matrices(group)
            if _is_in_layer(group) is False:
                order = self._order_of_tables(group)
                parts = [name for name in parts if name.removeprefix(TURNED) in order]
                parts.sort(key=lambda name: order.index(name.removeprefix(TURNED)))
            return parts
        if sorted(group.shape)[:1] == [1] and len(group.shape) == 3:
            return ["wpe"]
        return self._vectors(group) if len(group.shape) == 1 else []

    def names(self, group: Group) -> list[str]:
        """Return our names that a pattern may be, the likeliest first."""
        kinds = self._kinds(group)
        words = _words(group.name)
        found = [f"{part}.{kind}" for part in self._parts(group) for kind in kinds]
        found = [name for name in found if name.removeprefix(TURNED) not in self.settled]
        found.sort(key=lambda name: -len(_words(name.removeprefix(TURNED)) & words))
        return found[:OFFERED]

    def _kinds(self, group: Group) -> Collection[str]:
        if len(group.shape) > 1 or _last(group.name) in WEIGHTS:
            return ("weight",)
        return ("bias",) if _last(group.name) in BIASES else ("weight", "bias")
