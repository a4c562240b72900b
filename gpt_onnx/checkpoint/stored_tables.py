"""Stored tables that follow a formula, and so are no weights: sinusoidal positions and causal masks.

>>> sinusoidal_style_of(table)     # "interleaved", "concatenated", or None for another table
>>> is_causal(mask)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import CheckpointError

BASE = 10000.0
LEAST_ERROR = 2e-6  # of a sine in float32
ANGLE_ERROR = 2.0**-22  # of an angle, for each position: the frequency and the product are rounded

Array = NDArray[Any]


class Shaped(Protocol):
    """A stored tensor of which the shape is known."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along each axis."""
        ...


def without_ones(array: Array) -> Array:
    """Return a table (L, E) that was stored as (1, L, E) or (L, 1, E)."""
    return array.reshape([size for size in array.shape if size != 1]) if array.ndim == 3 else array


def _interleaved(sines: Array, cosines: Array) -> Array:
    return np.stack((sines, cosines), axis=-1).reshape(len(sines), -1)


def _concatenated(sines: Array, cosines: Array) -> Array:
    return np.concatenate((sines, cosines), axis=1)


STYLES = {"interleaved": _interleaved, "concatenated": _concatenated}


def sinusoidal_style_of(table: Array) -> str | None:
    """Return how a table (L, E) of positions orders sines and cosines; float32's own error is allowed.

    None where it holds anything else: a trained table, another base, scaled or shifted rows.
    """
    if table.ndim != 2 or len(table) < 2 or table.shape[1] < 4 or table.shape[1] % 2:
        return None
    length, width = table.shape
    positions = np.arange(length, dtype=np.float64)[:, None]
    angles = positions / BASE ** (np.arange(0, width, 2) / width)
    allowed = LEAST_ERROR + ANGLE_ERROR * positions
    for style, arrange in STYLES.items():
        if (np.abs(table - arrange(np.sin(angles), np.cos(angles))) <= allowed).all():
            return style
    return None


def is_causal(mask: Array) -> bool:
    """Whether a square mask has one value for a token and what is before it, and another for the rest."""
    length = mask.shape[-1]
    if mask.ndim < 2 or mask.shape[-2] != length or mask.size != length * length:
        return False
    square = mask.reshape(length, length)
    seen = np.tri(length, dtype=bool)
    before, after = square[seen], square[~seen]
    if not length or not (before == before[0]).all():
        return False
    return bool(length == 1 or ((after == after[0]).all() and after[0] != before[0]))


def check_masks(
    path: Path, tensors: Mapping[str, Shaped], names: Iterable[str], read: Callable[[str], Array]
) -> None:
    """See that stored masks are causal, each of them: layers may attend to a window in turn.

    Args:
        path: The file, for messages.
        tensors: Everything that is stored.
        names: Which of them are masks.
        read: Reads one by its name.

    Raises:
        CheckpointError: naming one that is not.
    """
    for name in names:
        if not is_causal(read(name)):
            raise CheckpointError(
                f"{path}: {name} is a mask that is not causal; a GPT's lets each token see itself and all "
                "that is before it."
            )
