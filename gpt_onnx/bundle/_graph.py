"""Read what an ONNX file is made of, with neither onnx nor a protobuf library.

    >>> summary = read_graph("my-gpt/onnx/model.onnx")      # doctest: +SKIP
    >>> summary.op_counts[("", "MatMul")]                   # doctest: +SKIP
    49

Weights are not copied, subgraphs are noticed and not entered, so nothing here is recursive: a hostile file
costs one pass over its bytes and a BundleError. The numbers are those of onnx.proto3; a field that it lets
occur once is refused when it occurs twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpt_onnx.bundle._hashing import read_bounded
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._summary import (
    DTYPES,
    STANDARD_DOMAIN,
    UNKNOWN_DIM,
    UNKNOWN_SHAPE,
    External,
    GraphSummary,
    Initializer,
    Node,
    Value,
)
from gpt_onnx.bundle._wire import Field, Reader
from gpt_onnx.errors import BundleError

MAX_GRAPH_BYTES = 2**31 - 1
"""What Protocol Buffers themselves allow for one message."""
_MAX_RANK = 32
_MAX_HELD_FIELDS = 100_000


class _Message:
    """The fields of one small message, by number."""

    def __init__(self, reader: Reader, view: memoryview) -> None:
        self.reader = reader
        self._fields: dict[int, list[Field]] = {}
        for count, field in enumerate(reader.fields(view)):
            if count >= _MAX_HELD_FIELDS:
                raise BundleError(f"one part has more than {_MAX_HELD_FIELDS} fields.")
            self._fields.setdefault(field.number, []).append(field)

    def all(self, number: int) -> list[Field]:
        return self._fields.get(number, [])

    def one(self, number: int) -> Field | None:
        found = self.all(number)
        if len(found) > 1:
            raise BundleError(f"field {number} occurs {len(found)} times; it may occur once.")
        return found[0] if found else None

    def integer(self, number: int, default: int = 0) -> int:
        field = self.one(number)
        return default if field is None else field.integer()

    def text(self, number: int) -> str:
        field = self.one(number)
        return "" if field is None else field.text()

    def texts(self, number: int) -> tuple[str, ...]:
        return tuple(field.text() for field in self.all(number))

    def message(self, number: int) -> _Message | None:
        field = self.one(number)
        return None if field is None else _Message(self.reader, field.content())

    def messages(self, number: int) -> Iterator[_Message]:
        return (_Message(self.reader, field.content()) for field in self.all(number))


def _domain(name: str) -> str:
    return STANDARD_DOMAIN if name == "ai.onnx" else name


def _dtype(number: int) -> tuple[str, int]:
    if number not in DTYPES:
        raise BundleError(f"an element type has the number {number}; known are 1 to {max(DTYPES)}.")
    return DTYPES[number]


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BundleError(f"it says {shorten(text)} where a number of bytes must be.")
    return int(text)


def _external(tensor: _Message) -> External:
    """Read external_data (13): exactly location, offset and length; a checksum is allowed and not used."""
    entries = [(entry.text(1), entry.text(2)) for entry in tensor.messages(13)]
    values = dict(entries)
    if len(values) < len(entries) or set(values) - {"checksum"} != {"location", "offset", "length"}:
        raise BundleError(
            f"it is external with {shorten(sorted(values))}; it must say location, offset, length once."
        )
    offset, length = (_decimal(values[key]) for key in ("offset", "length"))
    return External(location=values["location"], offset=offset, length=length)


def _initializer(tensor: _Message) -> Initializer:
    dims = tuple(number for field in tensor.all(1) for number in tensor.reader.integers(field))
    dtype, bits = _dtype(tensor.integer(2))
    if len(dims) > _MAX_RANK or any(dim < 0 for dim in dims):
        raise BundleError(f"it has the dims {shorten(list(dims[:40]))}; at most {_MAX_RANK}, none negative.")
    size = (math.prod(dims) * bits + 7) // 8
    external = _external(tensor) if tensor.integer(14) == 1 or tensor.all(13) else None
    raw = tensor.one(9)
    if raw is not None and bits and len(raw.content()) != size:
        raise BundleError(f"it has {len(raw.content())} bytes; {dtype} {shorten(list(dims))} takes {size}.")
    if external is not None and (raw is not None or external.length != size or not bits):
        raise BundleError(
            f"it has {external.length} bytes outside of the graph; "
            f"{dtype} {shorten(list(dims))} takes {size}."
        )
    return Initializer(name=tensor.text(8), dtype=dtype, dims=dims, bytes=size, external=external)


def _dim(dim: _Message) -> int | str:
    value, name = dim.one(1), dim.text(2)
    return value.integer() if value is not None else name or UNKNOWN_DIM


_OTHER_TYPES = {4: "sequence", 5: "map", 8: "sparse_tensor", 9: "optional"}


def _value(info: _Message) -> Value:
    name, kind = info.text(1), info.message(2)
    tensor = kind.message(1) if kind else None
    if kind is None or tensor is None:
        found = [other for number, other in _OTHER_TYPES.items() if kind and kind.all(number)]
        return Value(name=name, elem_type=found[0] if found else "unknown", dims=UNKNOWN_SHAPE)
    shape = tensor.message(2)
    dims = UNKNOWN_SHAPE if shape is None else tuple(_dim(dim) for dim in shape.messages(1))
    return Value(name=name, elem_type=_dtype(tensor.integer(1))[0], dims=dims)


def _check_attribute_tensor(tensor: _Message) -> None:
    if tensor.all(13) or tensor.integer(14):
        raise BundleError("an attribute has its bytes outside of the graph; only weights may.")


_INTEGER = 2
"""The type (20) of an attribute that is one integer."""


def _node(node: _Message) -> Node:
    """Read a node; of its attributes integers (3), if there are graphs (6, 11), where tensors (5, 10) are."""
    if not node.text(4):
        raise BundleError("it has no operator.")
    has_subgraph, integers = False, {}
    for attribute in node.messages(5):
        has_subgraph |= bool(attribute.all(6) or attribute.all(11))
        if attribute.integer(20) == _INTEGER:
            if (name := attribute.text(1)) in integers:
                raise BundleError(f"it has the attribute {shorten(name)} twice.")
            integers[name] = attribute.integer(3)
        for number in (5, 10):
            for tensor in attribute.messages(number):
                _check_attribute_tensor(tensor)
    return Node(
        op=node.text(4),
        domain=_domain(node.text(7)),
        name=node.text(3),
        inputs=node.texts(1),
        outputs=node.texts(2),
        has_subgraph=has_subgraph,
        integers=integers,
    )


def _opsets(model: _Message) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in model.messages(8):
        domain = _domain(entry.text(1))
        if domain in opsets:
            raise BundleError(f"the operators of domain {shorten(domain)} are imported twice.")
        opsets[domain] = entry.integer(2)
    return opsets


_PARTS: Mapping[int, tuple[str, Callable[[_Message], Any]]] = {
    1: ("node", _node),
    5: ("initializer", _initializer),
    11: ("input", _value),
    12: ("output", _value),
}
"""Field of a graph to what it holds and how that is read."""
_ODD_MODEL_PARTS = {20: "training graphs"}
_ODD_GRAPH_PARTS = {14: "quantization annotations", 15: "sparse weights"}


def _graph(reader: Reader, view: memoryview) -> tuple[dict[str, list[Any]], set[str]]:
    """Read a graph field by field; a fault names the part that has it."""
    parts: dict[str, list[Any]] = {what: [] for what, _ in _PARTS.values()}
    oddities: set[str] = set()
    for field in reader.fields(view):
        if field.number in _ODD_GRAPH_PARTS:
            oddities.add(_ODD_GRAPH_PARTS[field.number])
        if field.number not in _PARTS:
            continue
        what, read = _PARTS[field.number]
        try:
            parts[what].append(read(_Message(reader, field.content())))
        except BundleError as exc:
            raise BundleError(f"{what} {len(parts[what])}: {exc}") from exc
    return parts, oddities


def parse_graph(content: bytes) -> GraphSummary:
    """Read the bytes of an ONNX model.

    Raises:
        BundleError: if they are not one, or break off.
    """
    reader = Reader()
    model = _Message(reader, memoryview(content))
    if (graph := model.one(7)) is None or not model.all(1):
        raise BundleError("it has no IR version or no graph.")
    parts, oddities = _graph(reader, graph.content())
    return GraphSummary(
        ir_version=model.integer(1),
        opsets=_opsets(model),
        inputs=tuple(parts["input"]),
        outputs=tuple(parts["output"]),
        initializers=tuple(parts["initializer"]),
        nodes=tuple(parts["node"]),
        functions=len(model.all(25)),
        oddities=tuple(
            sorted(oddities | {odd for number, odd in _ODD_MODEL_PARTS.items() if model.all(number)})
        ),
    )


def read_graph(path: str | Path) -> GraphSummary:
    """Read an ONNX file, without its external weights.

    Raises:
        BundleError: if it is not a plain file, over MAX_GRAPH_BYTES, or not an ONNX model.
    """
    content = read_bounded(Path(path), MAX_GRAPH_BYTES)
    try:
        return parse_graph(content)
    except BundleError as exc:
        raise BundleError(f"{path} is not an ONNX graph that can be read: {exc}") from exc
