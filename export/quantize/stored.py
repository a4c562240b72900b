"""What a bundle's own files say its weights are: quantised ones as they are stored, the others as numbers.

    stored = read_stored("bundle")
    stored.quantized["h.0.attn.c_attn.weight"].dequantized()      # (N, K) float32
    stored.floats["ln_f.weight"]                                  # mapped, not copied

Grids are read from the nodes that use the bytes (gpt_onnx.export.quantize._stored_nodes), so that what is
read is what will be computed. Refused: a weight that two nodes read differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gpt_onnx.bundle import open_bundle
from gpt_onnx.errors import BundleError

from ._stored_nodes import found_in
from .grid import Grid
from .quantized import Floats, Quantized

PIECE = 2**20
"""Numbers that are worked on at once."""


class Lazily(Mapping[str, Quantized]):
    """Weights by name, read when they are asked for and not kept."""

    def __init__(self, readers: Mapping[str, Callable[[], Quantized]]) -> None:
        self._readers = readers

    def __getitem__(self, name: str) -> Quantized:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a bundle stores."""

    quantized: Mapping[str, Quantized]
    """By the source's name of the weight."""
    grids: Mapping[str, Grid]
    """Of the same weights."""
    floats: Mapping[str, NDArray[Any]]
    """Every other tensor, by the name that the graph has for it; mapped."""
    accuracy_levels: Mapping[str, int]
    """What products with a weight round their inputs to: 4 is int8; nothing where the client decides."""
    again: Mapping[str, Quantized]
    """Weights that are stored a second time, in the order that lookups need."""


def _floats(models: list[ir.Model]) -> dict[str, NDArray[Any]]:
    """Return the floating-point tensors of all graphs, mapped; one that two graphs have is the same."""
    return {
        name: value.const_value.numpy()
        for model in models
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT
    }


def _agreed(known: dict[str, Any], name: str, value: object) -> None:
    """Note what a node says of a weight.

    Raises:
        BundleError: if another node says otherwise.
    """
    before = known.setdefault(name, value)
    if before != value:
        raise BundleError(
            f"one node reads {name} with {value} and another with {before}; export the bundle again."
        )


def read_stored(folder: str | Path) -> Stored:
    """Read the weights of a bundle.

    Raises:
        BundleError: if it is no bundle, or a graph contradicts itself.
    """
    bundle = open_bundle(folder, check_hashes=False)
    models = [ir.load(bundle.graph_path(role)) for role in bundle.manifest.graph.graphs]
    found = list(found_in(models))
    grids: dict[str, Grid] = {}
    levels: dict[str, int] = {}
    for use in found:
        _agreed(grids, use.name, use.grid)
        if use.level is not None:
            _agreed(levels, use.name, use.level)
    first = {use.name: use for use in reversed(found)}
    again = {use.name: use.read for use in found if use.integers.name != first[use.name].integers.name}
    return Stored(
        quantized=Lazily({name: use.read for name, use in first.items()}),
        grids=grids,
        floats=_floats(models),
        accuracy_levels=levels,
        again=Lazily(again),
    )


def pieces(quantized: Quantized) -> Iterator[tuple[slice, Quantized]]:
    """Yield some rows of a weight after others, mapped as the whole is."""
    step = max(1, PIECE // max(1, quantized.shape[1]))
    for start in range(0, quantized.shape[0], step):
        rows, zeros = slice(start, start + step), quantized.zero_points
        yield (
            rows,
            Quantized(
                packed=quantized.packed[rows],
                scales=quantized.scales[rows],
                zero_points=None if zeros is None else zeros[rows],
                grid=quantized.grid,
            ),
        )


def dequantized(quantized: Quantized) -> Floats:
    """Return the numbers that a weight means, (N, K), with no more memory than they take."""
    values = np.empty(quantized.shape, np.float32)
    for rows, part in pieces(quantized):
        values[rows] = part.dequantized()
    return values


def stored_weights(folder: str | Path) -> Mapping[str, Quantized]:
    """Return the quantised weights of a bundle by the source's names, read when they are asked for.

    Raises:
        BundleError: see ``read_stored``.
    """
    return read_stored(folder).quantized
