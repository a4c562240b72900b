"""Tensors of a file that torch.save or LibTorch wrote, as a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.archive import LazyTensor
from gpt_onnx.checkpoint.archive_values import ValueReader

FLOATS = ("F64", "F32", "F16", "BF16")


class TorchStore:
    """See Store; its names are those that the reader gives, such as those of ``state_dict_of``.

    Integers and truth values, such as masks and counters, are no weights and are left out.
    """

    def __init__(self, path: Path, tensors: Mapping[str, LazyTensor]) -> None:
        self.path = path
        self.files = (path,)
        self.tensors: Mapping[str, LazyTensor] = {
            name: tensor for name, tensor in tensors.items() if tensor.dtype in FLOATS
        }
        self._values = ValueReader(path)

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """See Store."""
        return self._values.read(self.tensors[name])
