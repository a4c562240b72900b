"""Half-quadratic quantisation: the lattice of each block with the least error of its own numbers, no text.

    minimise over scale and zero        sum_i c_i |w_i - scale (q_i - zero)|^p,        q nearest
    c_i = |w_i| + rms of the block

by shrinking and by half-quadratic alternation; gpt_onnx.export.quantize._search has the equations and where
they differ from Badri & Shaji (2023). Their c is 1 and their p below 1, which has the larger squared error;
of p = 2, 3 and 4 with c = 1, and p = 2 with this c, the last changes the predictions of the model that ships
least. By its own measure no block is worse than rounded to nearest.

    half_quadratic(weight, Grid(bits=4, block_size=32)).dequantized()
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ._blocks import checked, fitted, rounded
from ._search import Search, searching
from .grid import Grid
from .quantized import Floats, Quantized

POWER = 2.0
"""p."""


def half_quadratic(
    weight: Floats,
    grid: Grid,
    hessian: NDArray[Any] | None = None,
    called: str = "a weight",
    *,
    power: float = POWER,
) -> Quantized:
    """Quantise a weight (N, K); it needs no Hessian.

    Raises:
        ConfigError: if the weight is no matrix, or its inputs do not fill blocks.
        CheckpointError: if it holds NaN, infinity, or a number beyond 2^126.
    """
    weight = checked(weight, grid, called)
    return rounded(weight, grid, fitted(weight, grid, searching(Search(power=power))))
