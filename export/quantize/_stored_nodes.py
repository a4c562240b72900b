"""How the nodes of a graph use quantised weights, and what they read them as.

    for found in found_in(models): found.name, found.grid, found.read()

    MatMulNBits, GatherBlockQuantized      bits, block_size
    DequantizeLinear                       block_size, axis, the type of the integers; (K, N) is turned over
    Gather of one byte a number            the shape of its scales; zero points, if any

Refused: shapes that contradict the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError

from .grid import Grid
from .quantized import Quantized

KERNEL, LINEAR, ROWS = ".packed", ".columns", ".integers"
"""How the integers of a weight are called behind its name; see gpt_onnx.export.quantize.parts."""
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


@dataclass(frozen=True, slots=True)
class Found:
    """One node's use of a quantised weight."""

    name: str
    """The source's name of the weight."""
    integers: ir.Value
    """Where they are stored."""
    grid: Grid
    read: Callable[[], Quantized]
    level: int | None
    """The accuracy level of a product; None where the node has none."""


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
    name = value.name or ""
    for suffix in (KERNEL, LINEAR, ROWS):
        name = name.removesuffix(suffix)
    return name


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
        packed=_shaped(packed, (rows, blocks, block_bytes), f"{name}{KERNEL}"),
        scales=_shaped(scales, (rows, blocks), f"{name}.scales"),
        zero_points=None if zeros is None else _shaped(zeros, (rows, zero_bytes), f"{name}.zero_points"),
        grid=grid,
    )


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _of_kernel(node: ir.Node, places: tuple[int, int, int], level: int | None) -> Found | None:
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
    return Found(name, value, grid, partial(_packed_quantized, name, grid, tensors), level)


def _of_product(node: ir.Node) -> Found | None:
    found = _of_kernel(node, (1, 2, 3), _number(node, "accuracy_level", 0))
    if found is not None and _number(node, "K", 0) % found.grid.block_size:
        raise BundleError(
            f"{found.name} has {_number(node, 'K', 0)} inputs, no multiple of its node's block_size = "
            f"{found.grid.block_size}; export the bundle again."
        )
    return found


def _of_lookup(node: ir.Node) -> Found | None:
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


def _of_linear(node: ir.Node) -> Found | None:
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
    read = partial(_linear_quantized, grid, turned, (integers, scales, zeros))
    return Found(_name_of(value), value, grid, read, None)


def _rows_quantized(grid: Grid, integers: Array, scales: Array, zeros: Array) -> Quantized:
    return Quantized.of_integers(integers, np.ascontiguousarray(scales), zeros, grid)


def _of_rows(name: str, value: ir.Value, graph: ir.Graph, integers: Array) -> Found | None:
    """Read a table that lookups alone use: one byte a number, whatever its bits."""
    scales, zeros = (_constant(graph.initializers.get(f"{name}{part}")) for part in (".scales", ".zeros"))
    if scales is None or zeros is None:
        return None
    arrays = integers, scales.numpy(), zeros.numpy()
    grid = Grid(bits=4 if integers.max() < 16 else 8, block_size=_block_size(integers, arrays[1]))
    return Found(name, value, grid, partial(_rows_quantized, grid, *arrays), None)


def _of_packed_rows(name: str, value: ir.Value, graph: ir.Graph, integers: Array) -> Found | None:
    """Read a table that MatMulNBits could read too, of 8-bit numbers."""
    parts = (graph.initializers.get(f"{name}{part}") for part in (".scales", ".zero_points"))
    scales, zeros = map(_constant, parts)
    if scales is None or value.const_value is None:
        return None
    grid = Grid(bits=8, block_size=_block_size(integers, scales.numpy()), symmetric=zeros is None)
    tensors = (value.const_value, scales, zeros)
    return Found(name, value, grid, partial(_packed_quantized, name, grid, tensors), None)


def _block_size(integers: Array, scales: Array) -> int:
    """Return how many numbers of a table, a row an output or in blocks, share a scale."""
    return int(integers.size // max(1, scales.size))


TABLES: Mapping[str, Callable[[str, ir.Value, ir.Graph, Array], Found | None]] = {
    ROWS: _of_rows,
    KERNEL: _of_packed_rows,
}
"""How the integers of a table are called to what reads a lookup of it in standard operators."""


def _of_gather(node: ir.Node) -> Found | None:
    """Read a lookup in standard operators: its integers have one byte each."""
    value, graph = node.inputs[0], node.graph
    integers = _constant(value)
    if value is None or integers is None or graph is None:
        return None
    name = _name_of(value)
    read = TABLES.get((value.name or "").removeprefix(name))
    return None if read is None else read(name, value, graph, integers.numpy())


READERS: Mapping[tuple[str, str], Callable[[ir.Node], Found | None]] = {
    ("com.microsoft", "MatMulNBits"): _of_product,
    ("com.microsoft", "GatherBlockQuantized"): _of_lookup,
    ("", "DequantizeLinear"): _of_linear,
    ("", "Gather"): _of_gather,
}
"""Domain and type of a node that uses a quantised weight to what reads it."""


def found_in(models: Iterable[ir.Model]) -> Iterator[Found]:
    """Yield every use of a quantised weight."""
    for model in models:
        for node in model.graph:
            read = READERS.get((node.domain, node.op_type))
            found = None if read is None else read(node)
            if found is not None:
                yield found
