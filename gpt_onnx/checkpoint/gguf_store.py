"""One GGUF file as a store: quantised tensors are dequantised by the gguf package, one at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.gguf_file import GgufTensor, read_header
from gpt_onnx.errors import CheckpointError, InputError

PLAIN: Mapping[str, str] = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
"""Types that NumPy has."""
BLOCK_BYTES = 1 << 24  # dequantised at once, so that no temporary of a whole vocabulary is made
INSTALL = 'pip install "gpt-onnx[gguf]"'


def _bfloat16(data: NDArray[np.uint8]) -> NDArray[np.float32]:
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _dequantise(rows: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Return rows of blocks as rows of numbers.

    Raises:
        InputError: if the gguf package is missing.
    """
    try:
        from gguf import GGMLQuantizationType, dequantize
    except ImportError as exc:
        raise InputError(
            f"tensors of {dtype} are read by the gguf package, which is missing; {INSTALL}."
        ) from exc
    kind = GGMLQuantizationType[dtype]
    step = max(1, BLOCK_BYTES // rows.shape[1])
    parts = [dequantize(rows[first : first + step], kind) for first in range(0, len(rows), step)]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


class GgufStore:
    """See Store; the header is checked when it is opened.

    Raises:
        CheckpointError: if the file cannot be opened, is truncated, or its header breaks the rules.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = (path,)
        header = read_header(path)
        self.metadata = header.metadata
        self.tensors: Mapping[str, GgufTensor] = header.tensors

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """See Store."""
        tensor = self.tensors[name]
        try:
            data = np.fromfile(self.path, np.uint8, tensor.length, offset=tensor.offset)
        except OSError as exc:
            raise CheckpointError(f"{self.path}: {name} could not be read any more: {exc}.") from exc
        if data.size != tensor.length:
            raise CheckpointError(f"{self.path}: {name} could not be read any more: the file has changed.")
        if tensor.dtype in PLAIN:
            return data.view(PLAIN[tensor.dtype]).reshape(tensor.shape)
        if tensor.dtype == "BF16":
            return _bfloat16(data).reshape(tensor.shape)
        rows = math.prod(tensor.shape[:-1])
        return _dequantise(data.reshape(rows, -1), tensor.dtype).reshape(tensor.shape)
