"""What a bundle's own files say its weights are: quantised ones as they are stored, the others as numbers.

    stored = read_stored("bundle")
    stored.quantized["h.0.attn.c_attn.weight"].dequantized()      # (N, K) float32
    stored.floats["ln_f.weight"]                                  # mapped, not copied

Grids are read from the nodes that use the bytes, so that what is read is what will be computed:

    MatMulNBits, GatherBlockQuantized      bits, block_size
    DequantizeLinear                       block_size, axis, the type of the integers; (K, N) is turned over

Refused: a weight that two nodes read differently, and shapes that contradict the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gpt_onnx.bundle import open_bundle
from gpt_onnx.errors import BundleError

from .grid import Grid
from .quantized import Floats, Quantized

PIECE = 2**20
"""Numbers that are worked on at once."""
SUFFIX = ".packed"
"""Of the integers of a weight; scales and zero points may have any name."""
INTEGERS: Mapping[ir.DataType, tuple[int, int]] = {
    ir.DataType.UINT4: (4, 0),
    ir.DataType.INT4: (4, 8),
    ir.DataType.UINT8: (8, 0),
    ir.DataType.INT8: (8, 128),
}
"""Type of DequantizeLinear's integers to their bits, and what makes them unsigned."""

Array = NDArray[Any]
Tensors = tuple[ir.TensorProtocol, ir.TensorProtocol, ir.TensorProtocol | None]
"""Integers, scales and zero points."""


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
    floats: Mapping[str, Array]
    """Every other tensor, by the name that the graph has for it; mapped."""
    accuracy_levels: Mapping[str, int]
    """What products with a weight round their inputs to: 4 is int8; nothing where the client decides."""


@dataclass(frozen=True, slots=True)
class _Found:
    """One node's use of a quantised weight."""

    name: str
    grid: Grid
    read: Callable[[], Quantized]
    level: int | None


def _constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    return None if value is None else value.const_value


def _source_of(value: ir.Value) -> ir.Value:
    """Return the initializer behind a value, through reshapes."""
    node = value.producer()
    while node is not None and node.op_type == "Reshape" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _name_of(value: ir.Value) -> str:
    return (value.name or "").removesuffix(SUFFIX)


def _number(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.as_int())


def _shaped(array: Array, shape: tuple[int, ...], name: str) -> Array:
    """Return the same numbers in another shape.

    Raises:
        BundleError: if they are not as many.
    """
    if array.size != int(np.prod(shape)):
        raise BundleError(
            f"{name} has the shape {list(array.shape)}, which its node reads as {list(shape)}; "
            "export the bundle again."
        )
    return array.reshape(shape)


def _packed_quantized(name: str, grid: Grid, tensors: Tensors) -> Quantized:
    """Read the bytes of MatMulNBits or GatherBlockQuantized."""
    packed, scales = tensors[0].numpy(), tensors[1].numpy()
    zeros = None if tensors[2] is None else tensors[2].numpy()
    rows = packed.shape[0]
    block_bytes = grid.block_size * grid.bits // 8
    blocks = packed.size // max(1, rows * block_bytes)
    zero_bytes = -(-blocks * grid.bits // 8)
    return Quantized(
        packed=_shaped(packed, (rows, blocks, block_bytes), name + SUFFIX),
        scales=_shaped(scales, (rows, blocks), f"{name}.scales"),
        zero_points=None if zeros is None else _shaped(zeros, (rows, zero_bytes), f"{name}.zero_points"),
        grid=grid,
    )


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _of_kernel(node: ir.Node, places: tuple[int, int, int], level: int | None) -> _Found | None:
    """Read a node of ONNX Runtime's own, whose inputs are integers, scales and zero points there."""
    packed, scales, zeros = (_input(node, place) for place in places)
    if packed is None or scales is None:
        return None
    value = _source_of(packed)
    stored = (_constant(value), _constant(scales), _constant(zeros))
    if stored[0] is None or stored[1] is None:
        return None
    tensors = (stored[0], stored[1], stored[2])
    grid = Grid(
        bits=_number(node, "bits", 4),
        block_size=_number(node, "block_size", 128),
        symmetric=tensors[2] is None,
    )
    name = _name_of(value)
    return _Found(name, grid, partial(_packed_quantized, name, grid, tensors), level)


def _of_product(node: ir.Node) -> _Found | None:
    found = _of_kernel(node, (1, 2, 3), _number(node, "accuracy_level", 0))
    if found is not None and _number(node, "K", 0) % found.grid.block_size:
        raise BundleError(
            f"{found.name} has {_number(node, 'K', 0)} inputs, no multiple of its node's block_size = "
            f"{found.grid.block_size}; export the bundle again."
        )
    return found


def _of_lookup(node: ir.Node) -> _Found | None:
    return _of_kernel(node, (0, 2, 3), None)


def _unpacked(tensor: ir.TensorProtocol, shift: int) -> Array:
    """Return integers from 0 on, one a byte."""
    return (tensor.numpy().astype(np.int16) + shift).astype(np.uint8)


def _linear_quantized(
    grid: Grid,
    turned: bool,
    tensors: Tensors,
) -> Quantized:
    """Read the tensors of DequantizeLinear; a missing zero point is 0 of their type."""
    integers, scales = tensors[0], tensors[1].numpy()
    shift = INTEGERS[integers.dtype][1]
    zeros = np.full(scales.shape, shift, np.uint8) if tensors[2] is None else _unpacked(tensors[2], shift)
    parts = (_unpacked(integers, shift), scales, zeros)
    values, scales, zeros = (part.T if turned else part for part in parts)
    return Quantized.of_integers(values, np.ascontiguousarray(scales, np.float32), zeros, grid)


def _of_linear(node: ir.Node) -> _Found | None:
    tensors = tuple(_constant(_input(node, place)) for place in range(3))
    integers, scales, zeros = tensors
    if integers is None or scales is None or integers.dtype not in INTEGERS or len(integers.shape) != 2:
        return None
    bits, shift = INTEGERS[integers.dtype]
    symmetric = zeros is None and shift > 0
    grid = Grid(bits=bits, block_size=_number(node, "block_size", 0), symmetric=symmetric)
    turned = _number(node, "axis", 1) in (0, -2)
    value = node.inputs[0]
    assert value is not None
    return _Found(
        _name_of(value), grid, partial(_linear_quantized, grid, turned, (integers, scales, zeros)), None
    )


READERS: Mapping[tuple[str, str], Callable[[ir.Node], _Found | None]] = {
    ("com.microsoft", "MatMulNBits"): _of_product,
    ("com.microsoft", "GatherBlockQuantized"): _of_lookup,
    ("", "DequantizeLinear"): _of_linear,
}
"""Domain and type of a node that uses a quantised weight to what reads it."""


def _uses(models: list[ir.Model]) -> Iterator[_Found]:
    for model in models:
        for node in model.graph:
            read = READERS.get((node.domain, node.op_type))
            found = None if read is None else read(node)
            if found is not None:
                yield found


def _floats(models: list[ir.Model]) -> dict[str, Array]:
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
    readers: dict[str, Callable[[], Quantized]] = {}
    grids: dict[str, Grid] = {}
    levels: dict[str, int] = {}
    for found in _uses(models):
        readers[found.name] = found.read
        _agreed(grids, found.name, found.grid)
        if found.level is not None:
            _agreed(levels, found.name, found.level)
    return Stored(quantized=Lazily(readers), grids=grids, floats=_floats(models), accuracy_levels=levels)


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
