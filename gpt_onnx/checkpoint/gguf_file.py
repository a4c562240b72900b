"""The header of a GGUF file, checked field by field: what it says of the model, and where each tensor lies.

A file is four letters, the version, two counts, the metadata (key, type, value), one entry a tensor (name,
dimensions, type, offset), and the data from the next multiple of the alignment. Every length and count is
held against what is left of the file before anything of that size is made.

    >>> header = read_header(Path("model.gguf"))
    >>> header.metadata["general.architecture"]
    'llama'

Refused: big-endian files, versions other than 2 and 3, arrays of arrays, and tensors of a type not in TYPES.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpt_onnx.errors import CheckpointError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_KEYS = 100_000
MAX_TENSORS = 1_000_000
MAX_NAME = 1024  # bytes of a key or of a tensor's name
MAX_TEXT = 64_000_000  # bytes of one value
MAX_TEXTS = 1 << 22  # members of one array of texts
MAX_DIMS = 4

TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    14: ("Q6_K", 256, 210),
    28: ("F64", 1, 8),
    30: ("BF16", 1, 2),
}
"""What is read, by its number in the file: its name, elements in a block, bytes of a block."""
OTHER_TYPES: Mapping[int, str] = {
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
}
"""Types that are known by name alone, for the message."""
_SCALARS: Mapping[int, str] = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """Where one tensor lies in its file."""

    dtype: str
    """The name of its type, e.g. "Q8_0"."""
    shape: tuple[int, ...]
    """Its dimensions, as PyTorch counts them."""
    offset: int
    """Its first byte, counted from the start of the file."""
    length: int
    """Its size in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a file says that it holds; ``read_header`` has checked that it can."""

    metadata: Mapping[str, Any]
    """Text, numbers, lists of text, and arrays of numbers, by key."""
    tensors: Mapping[str, GgufTensor]
    """By name, in the order of the file."""


class _Stream:
    """A file from its start, read no further than it goes."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.size, self.at = path, size, 0
        self._file = file

    def fault(self, text: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {text}.")

    def take(self, count: int, what: str) -> bytes:
        if count > self.size - self.at:
            raise self.fault(
                f"{what} would need {count} bytes at byte {self.at}, and the file has {self.size}; "
                "it is truncated or damaged: fetch or write it again"
            )
        data = self._file.read(count)
        if len(data) != count:
            raise self.fault(f"{what} could not be read at byte {self.at}; the file has changed")
        self.at += count
        return data

    def number(self, form: str, what: str) -> Any:
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(form), what))
        return value

    def text(self, what: str, limit: int = MAX_TEXT) -> str:
        length = self.number("Q", what)
        if length > limit:
            raise self.fault(f"{what} has {length} bytes; at most {limit} are read")
        try:
            return self.take(length, what).decode("utf-8")
        except UnicodeDecodeError as exc:
            raise self.fault(f"{what} is not UTF-8 text") from exc


def _scalar(stream: _Stream, kind: int, what: str) -> Any:
    dtype = np.dtype(_SCALARS[kind])
    return np.frombuffer(stream.take(dtype.itemsize, what), dtype)[0].item()


def _array(stream: _Stream, what: str) -> Any:
    kind, count = stream.number("I", what), stream.number("Q", what)
    if kind == _TEXT:
        if count > min(MAX_TEXTS, (stream.size - stream.at) // 8):
            raise stream.fault(
                f"{what} claims {count} texts, more than the file can hold or any tokenizer has"
            )
        return [stream.text(what, MAX_NAME * 64) for _ in range(count)]
    if kind not in _SCALARS:
        raise stream.fault(f"{what} is an array of the type {kind}; arrays of numbers and of texts are read")
    dtype = np.dtype(_SCALARS[kind])
    return np.frombuffer(stream.take(count * dtype.itemsize, what), dtype)


def _value(stream: _Stream, key: str) -> Any:
    kind, what = stream.number("I", key), f"the value of {key}"
    if kind == _TEXT:
        return stream.text(what)
    if kind == _ARRAY:
        return _array(stream, what)
    if kind not in _SCALARS:
        raise stream.fault(f"{what} is of the type {kind}, which GGUF does not have")
    return _scalar(stream, kind, what)


def _metadata(stream: _Stream, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(count):
        key = stream.text("a key", MAX_NAME)
        if key in found:
            raise stream.fault(f"the key {key!r} occurs twice")
        found[key] = _value(stream, key)
    return found


def _type(stream: _Stream, name: str, number: int) -> tuple[str, int, int]:
    if number in TYPES:
        return TYPES[number]
    known = ", ".join(label for label, _, _ in TYPES.values())
    raise stream.fault(
        f"{name} is stored as {OTHER_TYPES.get(number, f'type {number}')}; known are {known}: convert the "
        "model to one of them, such as Q8_0"
    )


def _tensor(stream: _Stream) -> tuple[str, GgufTensor]:
    """Read one entry; its offset still counts from the start of the data."""
    name = stream.text("a tensor's name", MAX_NAME)
    dims = stream.number("I", name)
    if not 1 <= dims <= MAX_DIMS:
        raise stream.fault(f"{name} has {dims} dimensions; 1 to {MAX_DIMS} were expected")
    sizes = [stream.number("Q", name) for _ in range(dims)]
    label, block, block_bytes = _type(stream, name, stream.number("I", name))
    if min(sizes) < 1 or sizes[0] % block or math.prod(sizes) // block * block_bytes > stream.size:
        raise stream.fault(
            f"{name} has the dimensions {sizes} in {label}; the first must be a multiple of {block}, and all "
            f"of it must fit into the {stream.size} bytes of the file"
        )
    length = math.prod(sizes) // block * block_bytes
    offset = stream.number("Q", name)
    return name, GgufTensor(dtype=label, shape=tuple(reversed(sizes)), offset=offset, length=length)


def _placed(
    stream: _Stream, tensors: Mapping[str, GgufTensor], start: int, alignment: int
) -> dict[str, GgufTensor]:
    """Count offsets from the start of the file, and see that tensors lie in it and not over one another."""
    end, placed = start, {}
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
        first = start + tensor.offset
        if tensor.offset % alignment or first < end or first + tensor.length > stream.size:
            raise stream.fault(
                f"{name} would lie at bytes {first} to {first + tensor.length} of {stream.size}, the tensor "
                f"before it ends at {end}; the file is truncated or damaged: fetch or write it again"
            )
        end = first + tensor.length
        placed[name] = GgufTensor(dtype=tensor.dtype, shape=tensor.shape, offset=first, length=tensor.length)
    return {name: placed[name] for name in tensors}


def _alignment(stream: _Stream, metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", ALIGNMENT)
    if type(value) is not int or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise stream.fault(f"general.alignment is {str(value)[:40]}; a power of two was expected")
    return value


def _counts(stream: _Stream) -> tuple[int, int]:
    """Read the start of the file: how many tensors and keys there are."""
    if stream.take(min(4, stream.size), "the start") != MAGIC:
        raise stream.fault("the file does not begin with GGUF; it is no GGUF file")
    version = stream.number("I", "the version")
    if version not in VERSIONS:
        big = version and int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        raise stream.fault(
            "the file is big-endian; write it as little-endian"
            if big
            else f"the file is of GGUF version {version}; known are {', '.join(map(str, VERSIONS))}"
        )
    tensors, keys = stream.number("Q", "the counts"), stream.number("Q", "the counts")
    if tensors > MAX_TENSORS or keys > MAX_KEYS:
        raise stream.fault(
            f"the file claims {tensors} tensors and {keys} keys; the most are {MAX_TENSORS} and {MAX_KEYS}"
        )
    return tensors, keys


def _header(stream: _Stream) -> GgufHeader:
    count, keys = _counts(stream)
    metadata = _metadata(stream, keys)
    tensors: dict[str, GgufTensor] = {}
    for _ in range(count):
        name, tensor = _tensor(stream)
        if name in tensors:
            raise stream.fault(f"the tensor {name} occurs twice")
        tensors[name] = tensor
    alignment = _alignment(stream, metadata)
    start = -(-stream.at // alignment) * alignment
    return GgufHeader(metadata=metadata, tensors=_placed(stream, tensors, start, alignment))


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of a GGUF file.

    Raises:
        CheckpointError: if the file cannot be opened, is truncated, or its header breaks the rules.
    """
    try:
        with path.open("rb") as file:
            return _header(_Stream(path, file, path.stat().st_size))
    except OSError as exc:
        raise CheckpointError(f"{path} could not be read: {exc.strerror or exc}.") from exc
