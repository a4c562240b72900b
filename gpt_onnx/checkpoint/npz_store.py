"""A NumPy archive (``np.savez``) as a store: the header of each member at once, values one array at a time.

Arrays must be stored as they are: ``np.savez_compressed`` can pack any size into a small file. Weights are
float16, float32 or float64; integers and truth values are left out.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gpt_onnx.errors import CheckpointError

SUFFIX = ".npy"
DTYPES: Mapping[str, str] = {"<f8": "F64", "<f4": "F32", "<f2": "F16"}
MAX_MEMBERS = 100_000
MAX_HEADER = 65_536  # bytes that describe one array


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzTensor:
    """What is known of an array before it is read."""

    dtype: str
    """One of the values of DTYPES."""
    shape: tuple[int, ...]
    """Its dimensions."""


def is_npz(path: Path) -> bool:
    """Whether a file is a zip archive of arrays and nothing else; never raises."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # zipfile raises many kinds
        return False
    return bool(names) and all(name.endswith(SUFFIX) for name in names)


class NpzStore:
    """See Store.

    Raises:
        CheckpointError: if the file is damaged, or an array is compressed or of another dtype.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = (path,)
        self.tensors: Mapping[str, NpzTensor] = _tensors(path)

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """See Store."""
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(name + SUFFIX) as member:
                array = npy.read_array(member, allow_pickle=False)
        except Exception as exc:  # zipfile and NumPy raise many kinds
            raise CheckpointError(f"{self.path}: {name} could not be read any more: {exc}.") from exc
        if array.shape != self.tensors[name].shape:
            raise CheckpointError(f"{self.path}: {name} has another shape than before; the file has changed.")
        return np.ascontiguousarray(array)


def _tensors(path: Path) -> dict[str, NpzTensor]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise CheckpointError(f"{path} has {len(members)} arrays; at most {MAX_MEMBERS} are read.")
            found = {
                member.filename.removesuffix(SUFFIX): _tensor(path, archive, member) for member in members
            }
    except CheckpointError:
        raise
    except Exception as exc:  # zipfile and NumPy raise many kinds
        reason = next(iter(str(exc).splitlines()), type(exc).__name__).removesuffix(".")
        raise CheckpointError(f"{path} could not be read as an archive of arrays: {reason}.") from exc
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _tensor(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NpzTensor | None:
    """Read the header of one member; None where it holds integers or truth values."""
    name = member.filename.removesuffix(SUFFIX)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise CheckpointError(f"{path}: {name} is compressed; write the file with np.savez.")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file, max_header_size=MAX_HEADER)
        rest = member.file_size - file.tell()
    if dtype.kind in "iub":
        return None
    if dtype.str not in DTYPES:
        raise CheckpointError(f"{path}: {name} is of {dtype}; weights are float16, float32 or float64.")
    if rest != int(np.prod(shape, dtype=object)) * dtype.itemsize:
        raise CheckpointError(f"{path}: {name} has {rest} bytes and the shape {list(shape)}; it is damaged.")
    return NpzTensor(dtype=DTYPES[dtype.str], shape=tuple(shape))
