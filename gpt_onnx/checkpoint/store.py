"""Where weights lie on a disk: names, dtypes and shapes at once, values one tensor at a time.

A store knows a file format and no model. What a model makes of its tensors is a recipe's business
(gpt_onnx.checkpoint.recipe).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Stored(Protocol):
    """What is known of a tensor before it is read."""

    @property
    def dtype(self) -> str:
        """Return how it is stored: "F64", "F32", "F16", "BF16", or a format's own word, such as "Q8_0"."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Return its dimensions, as PyTorch counts them; those of a scalar are ()."""
        ...


class Store(Protocol):
    """A file of tensors, or several."""

    @property
    def path(self) -> Path:
        """Return the file, or the index of several, as messages name it."""
        ...

    @property
    def files(self) -> tuple[Path, ...]:
        """Return every file that is read, in a fixed order: their bytes are what a hash covers."""
        ...

    @property
    def tensors(self) -> Mapping[str, Stored]:
        """Return every floating-point tensor by its name in the file."""
        ...

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """Read one tensor as an array of its own memory; bfloat16 and quantised values come as float32.

        Raises:
            CheckpointError: if the file has changed or is damaged there.
        """
        ...
