"""A table of names read backwards: which part of which of our weights each of their tensors is.

The packed projection of queries, keys and values is cut into parts where the layout has parts, and a matrix
is turned where the layout stores (in, out).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpt_onnx.checkpoint.names import Name, Naming, pattern
from gpt_onnx.checkpoint.naming import PACKED, part_shapes
from gpt_onnx.checkpoint.recipe import Floats
from gpt_onnx.config import GPTConfig
from gpt_onnx.parameter_shapes import parameter_shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One tensor to be stored."""

    theirs: str
    ours: str
    """The weight that it is a part of."""
    rows: tuple[int, int]
    """The first of the weight's rows, and the one behind the last."""
    shape: tuple[int, ...]
    """As it is stored."""
    transposed: bool = False

    def cut(self, weight: Floats) -> Floats:
        """Return the part's values."""
        part = weight[slice(*self.rows)]
        return np.ascontiguousarray(part.T if self.transposed else part)


def _line(naming: Naming, ours: str) -> tuple[str, Name] | None:
    """Return the stored name of one of ours, and the first line of the table that tells it."""
    for line in naming.names:
        if match := pattern(line.ours).fullmatch(ours):
            return line.theirs.format(**match.groupdict()), line
    return None


def _part(naming: Naming, ours: str, weight: str, start: int, shape: tuple[int, ...]) -> Part | None:
    found = _line(naming, ours)
    if found is None:
        return None
    theirs, line = found
    return Part(
        theirs=theirs,
        ours=weight,
        rows=(start, start + shape[0]),
        shape=shape[::-1] if line.transposed else shape,
        transposed=line.transposed,
    )


def _parts_of(naming: Naming, name: str, shape: tuple[int, ...], config: GPTConfig) -> Iterator[Part | None]:
    """Yield the parts of one weight: itself, or its queries, keys and values; None: the table lacks one."""
    whole = _part(naming, name, name, 0, shape)
    packed = PACKED.fullmatch(name)
    if whole is not None or packed is None:
        yield whole
        return
    stem, kind = packed.groups()
    start = 0
    for part, size in part_shapes(config, kind).items():
        yield _part(naming, f"{stem}.{part}.{kind}", name, start, size)
        start += size[0]


def parts_of(naming: Naming | None, config: GPTConfig) -> list[Part]:
    """Return what a layout stores for a model, in the order of our weights.

    Args:
        naming: The layout's table; None where it has our names.
        config: The model, with every weight that the layout has.
    """
    parts: list[Part] = []
    for name, shape in parameter_shapes(config).items():
        if naming is None:
            parts.append(Part(theirs=name, ours=name, rows=(0, shape[0]), shape=shape))
            continue
        for part in _parts_of(naming, name, shape, config):
            assert part is not None, f"the table of names has no line for {name}"
            parts.append(part)
    return parts


def prefixed(naming: Naming, prefix: str) -> Naming:
    """Return a table whose stored names have a prefix."""
    return Naming(tuple(Name(prefix + line.theirs, line.ours, line.transposed) for line in naming.names))
