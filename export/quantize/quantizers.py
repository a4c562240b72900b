"""The quantisers by name.

quantize("rtn", weight, Grid(bits=4, block_size=32), called="h.0.attn.c_attn.weight")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from gpt_onnx.errors import ConfigError

from .gptq import gptq
from .grid import Grid
from .hqq import half_quadratic
from .quantized import Floats, Quantized
from .rtn import round_to_nearest


class QuantizerFunction(Protocol):
    """Quantises one weight."""

    def __call__(
        self, weight: Floats, grid: Grid, hessian: NDArray[Any] | None = None, called: str = "a weight"
    ) -> Quantized:
        """Take a weight (N, K) and, perhaps, the Hessian of its inputs, (K, K)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizer:
    """One way to choose integers."""

    name: str
    calibrated: bool
    """Whether it uses the Hessian of a layer's inputs on calibration text."""
    summary: str
    """One line for people."""
    function: QuantizerFunction


QUANTIZERS: Mapping[str, Quantizer] = {
    quantizer.name: quantizer
    for quantizer in (
        Quantizer(
            name="rtn",
            calibrated=False,
            summary="round to nearest, over each block's whole range",
            function=round_to_nearest,
        ),
        Quantizer(
            name="hqq",
            calibrated=False,
            summary="each block's scale and zero point searched for the least error of its numbers",
            function=half_quadratic,
        ),
        Quantizer(
            name="gptq",
            calibrated=True,
            summary="rounding that makes up for itself, for the least change of outputs on calibration text",
            function=gptq,
        ),
    )
}
"""By the quality that was measured, the best last (docs/quantisation.md)."""


def find_quantizer(name: str) -> Quantizer:
    """Look a quantiser up.

    Raises:
        ConfigError: if there is none of that name.
    """
    if name not in QUANTIZERS:
        raise ConfigError(f"quantizer is {name!r}; it must be one of {', '.join(QUANTIZERS)}.")
    return QUANTIZERS[name]


def quantize(
    name: str, weight: Floats, grid: Grid, hessian: NDArray[Any] | None = None, *, called: str = "a weight"
) -> Quantized:
    """Quantise a weight (N, K) with the quantiser of that name.

    Args:
        name: Of QUANTIZERS.
        weight: In float32.
        grid: How finely.
        hessian: 2 X X^T of the layer's inputs X (K, samples), or any multiple of it; those that are not
            calibrated do not use it, and one that is takes every input as equally strong without it.
        called: The weight's name in errors.

    Raises:
        ConfigError: if there is no such quantiser, the weight is no matrix, or its inputs do not fill blocks.
        CheckpointError: if it holds NaN or infinity.
    """
    return find_quantizer(name).function(weight, grid, hessian, called)
