"""The values of one tensor of an archive: the bytes of its storage, checked against their checksum."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.archive_tensors import ITEM_SIZES, LazyTensor
from gpt_onnx.checkpoint.archive_zip import Extent
from gpt_onnx.errors import CheckpointError

NUMPY_DTYPES: Mapping[str, str] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
BLOCK_BYTES = 1 << 20


def _crc_of(path: Path, extent: Extent) -> int:
    """Return the checksum of bytes on the disk, reading a block at a time."""
    crc, left = 0, extent.size
    with path.open("rb") as file:
        file.seek(extent.start)
        while left and (block := file.read(min(left, BLOCK_BYTES))):
            crc, left = zlib.crc32(block, crc), left - len(block)
    return crc


def _checked(path: Path, extent: Extent, crc: int) -> None:
    if extent.crc is not None and crc != extent.crc:
        raise CheckpointError(
            f"{path} has {extent.size} bytes of weights at {extent.start} that do not match their checksum; "
            "it is damaged, or was written with torch.serialization.set_crc32_options(False): "
            "fetch or write it again."
        )


class ValueReader:
    """Reads tensors of one file; each storage is checked when it is first read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked: set[int] = set()

    def read(self, tensor: LazyTensor) -> NDArray[Any]:
        """Read one tensor as an array of its own memory; bfloat16, which NumPy lacks, becomes float32.

        Raises:
            CheckpointError: if the file has changed or is damaged there.
        """
        try:
            flat = self._span(tensor)
        except OSError as exc:
            raise CheckpointError(f"{self.path} could not be read: {exc.strerror or exc}.") from exc
        if tensor.dtype == "BF16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        strides = tuple(step * flat.itemsize for step in tensor.stride)
        view = np.lib.stride_tricks.as_strided(flat, tensor.shape, strides)
        return view.reshape(tensor.shape) if view.flags.c_contiguous else view.copy()

    def _span(self, tensor: LazyTensor) -> NDArray[Any]:
        """Read the elements of the storage from the tensor's first to its last."""
        extent = tensor.storage.extent
        assert extent is not None
        whole = tensor.span == tensor.storage.count
        if not whole and extent.start not in self._checked:
            _checked(self.path, extent, _crc_of(self.path, extent))
            self._checked.add(extent.start)
        start = extent.start + tensor.offset * ITEM_SIZES[tensor.dtype]
        flat = np.fromfile(self.path, NUMPY_DTYPES[tensor.dtype], tensor.span, offset=start)
        if flat.size != tensor.span:
            raise CheckpointError(f"{self.path} has become shorter; it was being written: read it again.")
        if whole:
            _checked(self.path, extent, zlib.crc32(flat.view(np.uint8).data))
        return flat
