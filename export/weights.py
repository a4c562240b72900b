"""Give the graphs their weights: one file for all graphs, every weight in it once, read one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from .passes import STORED_TRANSPOSED
from .passes._graph import dims_of, is_parameter
from .passes._quantized import PART, Part
from .quantize.weights import QuantizedWeights

INLINE_BELOW = 1024  # bytes: ONNX Runtime refuses a model whose Reshape shape is external
ALIGNMENT = 65536  # bytes: what every platform can map
ALIGN_FROM = (65536, 2**20, 2**22)  # bytes: tensors of at least this size are aligned; the first that fits
PADDING_SHARE = 0.01  # of the file, at most, is padding


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One tensor of the data file and the values of the graphs that it belongs to."""

    name: str
    shape: tuple[int, ...]
    dtype: ir.DataType
    read: Callable[[], NDArray[Any]]
    values: tuple[ir.Value, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.ceil(math.prod(self.shape) * self.dtype.itemsize)


def _oriented(read: Callable[[str], NDArray[Any]], name: str, transposed: bool) -> Callable[[], NDArray[Any]]:
    def load() -> NDArray[Any]:
        array = read(name)
        return np.ascontiguousarray(array.T) if transposed else array

    return load


def collect_parameters(
    models: Iterable[ir.Model], names: Mapping[str, str], read: Callable[[str], NDArray[Any]]
) -> list[Weight]:
    """Gather the parameters of all graphs by the name that the source has for them.

    Args:
        models: The graphs, whose parameters have no value yet.
        names: The graph's name of each parameter to the source's.
        read: Reads a weight by the source's name.
    """
    users: dict[tuple[str, bool], list[ir.Value]] = {}
    for model in models:
        for value in model.graph.initializers.values():
            if is_parameter(value) and PART not in value.meta:
                key = (names[value.name or ""], bool(value.meta.get(STORED_TRANSPOSED)))
                users.setdefault(key, []).append(value)
    return [
        Weight(
            name=name,
            shape=tuple(int(dim) for dim in dims_of(values[0]) or ()),
            dtype=ir.DataType.FLOAT,
            read=_oriented(read, name, transposed),
            values=tuple(values),
        )
        for (name, transposed), values in users.items()
    ]


def parts_in(models: Iterable[ir.Model]) -> list[tuple[ir.Value, Part]]:
    """Return the initializers that hold a part of a quantised weight, each with what it holds."""
    values = (value for model in models for value in model.graph.initializers.values())
    return [(value, value.meta[PART]) for value in values if PART in value.meta]


def collect_parts(
    parts: Iterable[tuple[ir.Value, Part]], names: Mapping[str, str], quantized: QuantizedWeights
) -> list[Weight]:
    """Gather the parts of quantised weights, under the source's names of the weights.

    Args:
        parts: See ``parts_in``.
        names: The graph's name of each parameter to the source's.
        quantized: What gives the arrays; it is told which will be asked for.
    """
    users: dict[tuple[str, str], list[tuple[ir.Value, Part]]] = {}
    for value, part in parts:
        users.setdefault((names[part.weight], part.stored), []).append((value, part))
    weights = []
    for (name, stored), found in users.items():
        value, part = found[0]
        quantized.want(name, [stored])
        weights.append(
            Weight(
                name=(value.name or "").replace(part.weight, name, 1),
                shape=tuple(int(dim) for dim in dims_of(value) or ()),
                dtype=value.dtype or ir.DataType.UINT8,
                read=partial(quantized.part, name, part.grid, stored),
                values=tuple(value for value, _ in found),
            )
        )
    return weights


def collect_tables(models: Mapping[str, ir.Model]) -> list[Weight]:
    """Gather the constants that are too big for the graph: a module's buffers, such as a mask."""
    return [
        Weight(
            name=f"{role}.{value.name}",
            shape=tuple(int(dim) for dim in dims_of(value) or ()),
            dtype=tensor.dtype,
            read=tensor.numpy,
            values=(value,),
        )
        for role, model in models.items()
        for value in model.graph.initializers.values()
        if (tensor := value.const_value) is not None and tensor.nbytes >= ALIGNMENT
    ]


def align_from(sizes: Iterable[int]) -> int:
    """Choose from which size on tensors are aligned, so that little of the file is padding."""
    sizes = list(sizes)
    for threshold in ALIGN_FROM:
        padding = sum(-size % ALIGNMENT for size in sizes if size >= threshold)
        if padding <= PADDING_SHARE * sum(sizes):
            return threshold
    return ALIGN_FROM[-1]


def bind(weights: Iterable[Weight], path: Path, progress: Callable[[int, int], None]) -> None:
    """Write the data file, biggest tensors first, and let the graphs' values refer to it.

    Args:
        weights: What to write; tensors under INLINE_BELOW bytes go into the graphs instead.
        path: The data file, beside the graphs.
        progress: Told the bytes written so far and in all.
    """
    ordered = sorted(weights, key=lambda weight: (-weight.nbytes, weight.name))
    external = [weight for weight in ordered if weight.nbytes >= INLINE_BELOW]
    for weight in ordered[len(external) :]:
        _set_all(weight, _inline(weight))
    threshold = align_from(weight.nbytes for weight in external)
    total, written = sum(weight.nbytes for weight in external), 0
    with path.open("wb") as file:
        for weight in external:
            if weight.nbytes >= threshold:
                file.write(bytes(-file.tell() % ALIGNMENT))
            _set_all(weight, _write(weight, file, path))
            written += weight.nbytes
            progress(written, total)


def _inline(weight: Weight) -> ir.TensorProtocol:
    array = weight.read()
    if weight.dtype.itemsize < 1:  # two numbers a byte
        return ir.PackedTensor(array, weight.dtype, shape=ir.Shape(weight.shape), name=weight.name)
    return ir.Tensor(array.reshape(weight.shape), dtype=weight.dtype, name=weight.name)


def _write(weight: Weight, file: Any, path: Path) -> ir.ExternalTensor:
    offset = file.tell()
    file.write(np.ascontiguousarray(weight.read()).data)
    return ir.ExternalTensor(
        path.name,
        offset,
        weight.nbytes,
        weight.dtype,
        shape=ir.Shape(weight.shape),
        name=weight.name,
        base_dir=path.parent,
    )


def _set_all(weight: Weight, tensor: ir.TensorProtocol) -> None:
    """Make a tensor the value of every graph's initializer, under the source's name where that is free."""
    for value in weight.values:
        graph = value.graph
        assert graph is not None
        if value.const_value is None and not _is_taken(graph, weight.name):
            del graph.initializers[value.name or ""]
            value.name = weight.name
            graph.initializers[weight.name] = value
        value.const_value = tensor


def _is_taken(graph: ir.Graph, name: str) -> bool:
    """Whether a value of the graph has the name: a module may call a parameter "logits"."""
    if name in graph.initializers or any(value.name == name for value in graph.inputs):
        return True
    return any(output.name == name for node in graph for output in node.outputs)
