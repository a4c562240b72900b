"""The safetensors format: a header that is checked field by field before anything is read by it.

A file is eight bytes (the header's length, little endian), the header (one JSON object: name to dtype, shape
and offsets) and the data. Weights are floating-point tensors; integers and truth values, which other programs
store beside them, are listed apart where the caller allows them. The data must be covered exactly: no gap, no
overlap, nothing behind the last tensor.

    >>> header = read_header(Path("model.safetensors"))
    >>> header.tensors["wte.weight"].shape
    (4096, 256)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.files import write_chunks
from gpt_onnx.errors import CheckpointError

DTYPE_SIZES: Mapping[str, int] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
OTHER_SIZES: Mapping[str, int] = {
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}
"""Dtypes of what is no weight, such as a causal mask."""
NUMPY_DTYPES: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
MAX_HEADER_BYTES = 100_000_000  # as the reference implementation
ALIGNMENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Where one tensor lies in its file."""

    dtype: str
    """A key of DTYPE_SIZES or OTHER_SIZES."""
    shape: tuple[int, ...]
    """Its dimensions, each at least 1."""
    offset: int
    """Its first byte, counted from the start of the file."""
    length: int
    """Its size in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a file says that it holds; ``read_header`` has checked that it can."""

    tensors: Mapping[str, TensorInfo]
    """The weights by name, in the order of their data."""
    others: Mapping[str, TensorInfo] = field(default_factory=dict)
    """What has a dtype of OTHER_SIZES."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Free text under ``__metadata__``."""


def read_header(path: Path, *, floats_only: bool = True) -> Header:
    """Read and check the header of a safetensors file.

    Args:
        path: The file.
        floats_only: Whether a tensor of OTHER_SIZES is refused, or listed among ``Header.others``.

    Raises:
        CheckpointError: if the file cannot be opened, is truncated, or its header breaks the rules.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            raw = file.read(8)
            length = int.from_bytes(raw, "little")
            if len(raw) < 8 or length > min(size - 8, MAX_HEADER_BYTES):
                raise CheckpointError(
                    f"{path} has {size} bytes and its header would need {8 + length}; "
                    "it is truncated or not a safetensors file: fetch or write it again."
                )
            text = file.read(length)
    except OSError as exc:
        raise CheckpointError(f"{path} could not be read: {exc.strerror or exc}.") from exc
    entries = _parse(path, text)
    metadata = _checked_metadata(path, entries.pop("__metadata__", {}))
    sizes = DTYPE_SIZES if floats_only else {**DTYPE_SIZES, **OTHER_SIZES}
    tensors = {name: _tensor_info(path, name, entry, 8 + length, sizes) for name, entry in entries.items()}
    ordered = _covering(path, tensors, 8 + length, size)
    return Header(
        tensors={name: info for name, info in ordered.items() if info.dtype in DTYPE_SIZES},
        others={name: info for name, info in ordered.items() if info.dtype in OTHER_SIZES},
        metadata=metadata,
    )


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as exc:
        raise CheckpointError(
            f"{path} has a header that is not valid JSON ({exc}); it must be one object."
        ) from exc
    if not isinstance(entries, dict):
        raise CheckpointError(
            f"{path} has a header of type {type(entries).__name__}; it must be one JSON object."
        )
    return entries


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name occurs twice")
    return names


def _checked_metadata(path: Path, metadata: object) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{path} has __metadata__ that is not a map from text to text.")
    return metadata


def _tensor_info(
    path: Path, name: str, entry: object, data_start: int, sizes: Mapping[str, int]
) -> TensorInfo:
    """Check one entry by itself."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{path}: {name} needs exactly dtype, shape and data_offsets in the header.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in sizes:
        raise CheckpointError(
            f"{path}: {name} has dtype {dtype!r}; weights are one of {', '.join(DTYPE_SIZES)}."
        )
    if not _is_list_of_integers(shape) or min(shape, default=1) < 1:
        raise CheckpointError(
            f"{path}: {name} has the shape {shape!r}; every size must be an integer of at least 1."
        )
    if not _is_list_of_integers(offsets) or len(offsets) != 2:
        raise CheckpointError(f"{path}: {name} has the offsets {offsets!r}; two integers are needed.")
    begin, end = offsets
    expected = math.prod(shape) * sizes[dtype]
    if begin < 0 or end - begin != expected:
        raise CheckpointError(
            f"{path}: {name} has {end - begin} bytes at {begin}; {dtype} of shape {shape} needs {expected}."
        )
    return TensorInfo(dtype=dtype, shape=tuple(shape), offset=data_start + begin, length=expected)


def _is_list_of_integers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _covering(path: Path, tensors: dict[str, TensorInfo], start: int, size: int) -> dict[str, TensorInfo]:
    """Return the tensors in the order of their data, which must follow one another up to the file's end."""
    ordered = dict(sorted(tensors.items(), key=lambda item: item[1].offset))
    position = start
    for name, info in ordered.items():
        if info.offset != position:
            fault = "overlaps the tensor before it" if info.offset < position else "leaves a gap before it"
            raise CheckpointError(f"{path}: {name} begins at byte {info.offset}, not {position}: it {fault}.")
        position += info.length
    if position != size:
        raise CheckpointError(
            f"{path} has {size} bytes and its header describes {position}; "
            "it is truncated or has bytes added: fetch or write it again."
        )
    return ordered


def read_array(path: Path, info: TensorInfo) -> NDArray[np.floating[Any]]:
    """Read one tensor as an array of its own memory; bfloat16, which NumPy lacks, becomes float32."""
    array = np.fromfile(path, NUMPY_DTYPES[info.dtype], math.prod(info.shape), offset=info.offset)
    if info.dtype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.reshape(info.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tensor to be written: what the header says of it, and what makes its bytes in its turn."""

    dtype: str
    """A key of DTYPE_SIZES."""
    shape: tuple[int, ...]
    make: Callable[[], NDArray[Any]]
    """Returns an array of that shape with the very bytes; called once."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * DTYPE_SIZES[self.dtype]


def _header(entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> bytes:
    """Return the header with its length before it, padded so that data begin at a multiple of ALIGNMENT."""
    told: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name, entry in entries.items():
        offsets = [position, position + entry.nbytes]
        told[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
        position += entry.nbytes
    header = json.dumps(told, separators=(",", ":")).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    return len(header).to_bytes(8, "little") + header


def _bytes_of(name: str, entry: Entry) -> memoryview:
    array = np.ascontiguousarray(entry.make())
    assert array.shape == entry.shape, f"{name} was made with the shape {array.shape}, not {entry.shape}"
    assert array.nbytes == entry.nbytes, f"{name} was made as {array.dtype}, not {entry.dtype}"
    return array.reshape(-1).view(np.uint8).data


def write_entries(
    path: Path,
    entries: Mapping[str, Entry],
    metadata: Mapping[str, str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write a file tensor by tensor: no two of them are in memory at once.

    Names keep their order: equal input gives equal bytes. ``progress`` is told the bytes written and all.
    """
    total = sum(entry.nbytes for entry in entries.values())

    def chunks() -> Iterator[bytes | memoryview]:
        yield _header(entries, metadata)
        written = 0
        for name, entry in entries.items():
            yield _bytes_of(name, entry)
            written += entry.nbytes
            progress(written, total)

    write_chunks(path, chunks())


def write_file(
    path: Path, tensors: Mapping[str, tuple[str, NDArray[Any]]], metadata: Mapping[str, str]
) -> None:
    """Write arrays that are there; each tensor is its dtype (a key of DTYPE_SIZES) and its very bytes."""
    entries = {
        name: Entry(dtype=dtype, shape=array.shape, make=partial(np.asarray, array))
        for name, (dtype, array) in tensors.items()
    }
    write_entries(path, entries, metadata)
