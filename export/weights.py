"""Give the graphs their weights: one file for all graphs, every weight in it once, read one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gpt_onnx.errors import ExportError

from .passes import STORED_TRANSPOSED
from .passes._graph import dims_of, is_parameter
from .passes._quantized import PART, Part
from .quantize.weights import QuantizedWeights

INLINE_BELOW = 1024  # bytes: ONNX Runtime refuses a model whose Reshape shape is external
ALIGNMENT = 65536  # bytes: what every platform can map
ALIGN_FROM = (65536, 2**20, 2**22)  # bytes: tensors of at least this size are aligned; the first that fits
HALF_OVERFLOWS = 65_520.0  # from here on a number rounds to infinity in float16
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


def _halved(read: Callable[[], NDArray[Any]], name: str) -> Callable[[], NDArray[Any]]:
    """Round a weight to float16.

    Raises:
        ExportError: when it is read, if a number is beyond what float16 holds.
    """

    def load() -> NDArray[Any]:
        array = read()
        peak = float(np.abs(array).max(initial=0.0))
        if not peak < HALF_OVERFLOWS:
            raise ExportError(
                f"{name} has {peak:,.0f} and float16 ends at 65,504; keep fp32, or choose int8 or int4."
            )
        return array.astype(np.float16)

    return load


def _reader(
    read: Callable[[str], NDArray[Any]], name: str, transposed: bool, dtype: ir.DataType
) -> Callable[[], NDArray[Any]]:
    load = _oriented(read, name, transposed)
    return _halved(load, name) if dtype == ir.DataType.FLOAT16 else load


def collect_parameters(
    models: Iterable[ir.Model], names: Mapping[str, str], read: Callable[[str], NDArray[Any]]
) -> list[Weight]:
    """Gather the parameters of all graphs by the name that the source has for them.

    Args:
        models: The graphs, whose parameters have no value yet.
        names: The graph's name of each parameter to the source's.
        read: Reads a weight by the source's name.
    """
    users: dict[tuple[str, bool, ir.DataType], list[ir.Value]] = {}
    for model in models:
        for value in model.graph.initializers.values():
            if is_parameter(value) and PART not in value.meta:
                turned, dtype = bool(value.meta.get(STORED_TRANSPOSED)), value.dtype or ir.DataType.FLOAT
                users.setdefault((names[value.name or ""], turned, dtype), []).append(value)
    return [
        Weight(
            name=name,
            shape=tuple(int(dim) for dim in dims_of(values[0]) or ()),
            dtype=dtype,
            read=_reader(read, name, transposed, dtype),
            values=tuple(values),
        )
        for (name, transposed, dtype), values in users.items()
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


def shard_name(name: str, index: int) -> str:
    """Return the name of a data file: the first has the name alone, as transformers.js counts them."""
    return name if index == 0 else f"{name}_{index}"


def shards_of(path: Path) -> list[Path]:
    """Return the data files that there are, in order; nothing where the first is empty."""
    found: list[Path] = []
    while (shard := path.with_name(shard_name(path.name, len(found)))).exists() and shard.stat().st_size:
        found.append(shard)
    return found


class _Shards:
    """Data files, each of at most some bytes, one after another."""

    def __init__(self, path: Path, most: int | None) -> None:
        self._path, self._most, self._index = path, most, 0
        self.file: BinaryIO = path.open("wb")

    @property
    def path(self) -> Path:
        """Of the file that is written."""
        return self._path.with_name(shard_name(self._path.name, self._index))

    def make_room(self, size: int, alignment: int) -> None:
        """Go to where a tensor of a size begins, in the next file if this one would be too large."""
        start = self.file.tell() + -self.file.tell() % alignment
        if self._most is not None and self.file.tell() and start + size > self._most:
            self.file.close()
            self._index += 1
            self.file = self.path.open("wb")
        self.file.write(bytes(-self.file.tell() % alignment))


def bind(
    weights: Iterable[Weight], path: Path, progress: Callable[[int, int], None], *, most: int | None = None
) -> None:
    """Write the data files, biggest tensors first, and let the graphs' values refer to them.

    Args:
        weights: What to write; tensors under INLINE_BELOW bytes go into the graphs instead.
        path: The first data file, beside the graphs; there is no other unless ``most`` is given.
        progress: Told the bytes written so far and in all.
        most: Bytes of a file, at most, unless one tensor alone is larger.
    """
    ordered = sorted(weights, key=lambda weight: (-weight.nbytes, weight.name))
    external = [weight for weight in ordered if weight.nbytes >= INLINE_BELOW]
    for weight in ordered[len(external) :]:
        _set_all(weight, _inline(weight))
    threshold = align_from(weight.nbytes for weight in external)
    total, written = sum(weight.nbytes for weight in external), 0
    progress(written, total)
    shards = _Shards(path, most)
    try:
        for weight in external:
            shards.make_room(weight.nbytes, ALIGNMENT if weight.nbytes >= threshold else 1)
            _set_all(weight, _write(weight, shards.file, shards.path))
            written += weight.nbytes
            progress(written, total)
    finally:
        shards.file.close()


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
