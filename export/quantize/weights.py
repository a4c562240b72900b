"""Quantised weights of one export, a weight at a time: its large part is let go once it is written.

weights = QuantizedWeights(read, "hqq")
weights.part("h.0.attn.c_attn.weight", grid, "packed")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import CheckpointError

from .grid import Grid
from .parts import STORED
from .quantized import Quantized
from .quantizers import quantize

NOTHING: Mapping[str, Quantized] = MappingProxyType({})


class QuantizedWeights:
    """See the module.

    Args:
        read: Reads a weight (N, K) as float32 by the source's name.
        quantizer: A name in QUANTIZERS.
        ready: Weights that are quantised already.
    """

    def __init__(
        self,
        read: Callable[[str], NDArray[Any]],
        quantizer: str,
        ready: Mapping[str, Quantized] = NOTHING,
    ) -> None:
        self._read, self._quantizer = read, quantizer
        self._ready = dict(ready)
        self._held: dict[str, dict[str, NDArray[Any]]] = {}
        self._wanted: dict[str, set[str]] = {}

    def want(self, name: str, stored: Iterable[str]) -> None:
        """Say which parts of a weight will be asked for, each once."""
        self._wanted.setdefault(name, set()).update(stored)

    def part(self, name: str, grid: Grid, stored: str) -> NDArray[Any]:
        """Return one part; the weight is read and quantised when the first of its parts is asked for."""
        if name not in self._held:
            quantized = self._quantized(name, grid)
            self._held[name] = {part: STORED[part].array(quantized) for part in self._wanted[name]}
        return self._held[name].pop(stored)

    def _quantized(self, name: str, grid: Grid) -> Quantized:
        if name in self._ready:
            return self._ready.pop(name)
        weight = self._read(name)
        if not np.isfinite(weight).all():
            raise CheckpointError(f"{name} has NaN or infinity; such weights compute nothing.")
        return quantize(self._quantizer, weight, grid, called=name)
