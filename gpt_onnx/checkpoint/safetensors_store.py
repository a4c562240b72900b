"""One safetensors file as a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.safetensors import TensorInfo, read_array, read_header
from gpt_onnx.errors import CheckpointError


class SafetensorsStore:
    """See Store; the header is checked when it is opened.

    Args:
        path: The file.
        floats_only: Whether a tensor of another dtype is refused, or listed among ``others``.

    Raises:
        CheckpointError: if the file cannot be opened, is truncated, or its header breaks the rules.
    """

    def __init__(self, path: Path, *, floats_only: bool = True) -> None:
        header = read_header(path, floats_only=floats_only)
        self.path, self.metadata = path, header.metadata
        self.files = (path,)
        self.tensors: Mapping[str, TensorInfo] = header.tensors
        self.others: Mapping[str, TensorInfo] = header.others
        """Integers and truth values, which are no weights."""

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """See Store."""
        try:
            return read_array(self.path, self.tensors[name])
        except (OSError, ValueError) as exc:
            raise CheckpointError(f"{self.path}: {name} could not be read any more: {exc}.") from exc
