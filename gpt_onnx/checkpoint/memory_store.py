"""Tensors in memory as a store: the state dict of a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DTYPES: Mapping[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """What is known of a tensor."""

    dtype: str
    """One of the values of DTYPES."""
    shape: tuple[int, ...]
    """Its dimensions."""


class MemoryStore:
    """See Store; integers and truth values are no weights and are left out.

    Args:
        tensors: By name.
        name: What messages call them.
    """

    def __init__(self, tensors: Mapping[str, Tensor], name: str) -> None:
        self.path = Path(name)
        self.files: tuple[Path, ...] = ()
        self._tensors = {key: tensor for key, tensor in tensors.items() if tensor.dtype in DTYPES}
        self.tensors: Mapping[str, TensorFacts] = {
            key: TensorFacts(dtype=DTYPES[tensor.dtype], shape=tuple(tensor.shape))
            for key, tensor in self._tensors.items()
        }

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """See Store."""
        tensor = self._tensors[name].detach().cpu()
        wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        return np.array(wide.numpy())
