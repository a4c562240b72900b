"""What norms cost in float32 when their sums are taken one after another, in any PyTorch program.

ONNX Runtime's SkipLayerNormalization, which it also makes of a sum and a norm by itself, adds the numbers of
a row one by one, and then the squares of what they differ from the mean. PyTorch keeps partial sums. Errors
(root mean squares) in units of PyTorch's, of normal numbers whose deviation is 1, onnxruntime 1.32:

    width    mean    SkipLayerNormalization    one by one
    256      0       1.9                       2.1
    256      3       3.9                       5.7
    1280     0       4.1                       4.5
    1280     3       10.1                      10.4
    1280     10      11.7                      11.5

A few layers show nothing of it. Behind 36 layers of width 256 a right graph came to 3.96 times the error of
PyTorch, of 4 that are accepted.

    with NormsInTurn():
        module(ids)               # every norm of float32 that is PyTorch's own: a class that squares and
                                  # takes the mean itself, as our RMSNorm, stays as it is
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .in_turn import product_in_turn

EPSILON = torch.finfo(torch.float32).eps
"""Of F.rms_norm where none is given."""


def _mean(x: Tensor) -> Tensor:
    """Return the mean over the last dim, kept, of a sum that is taken number by number."""
    return product_in_turn(x, x.new_ones(x.shape[-1], 1)) / x.shape[-1]


def _rows(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Put the dims that are normalised into one."""
    return x.flatten(-len(shape))


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Return F.layer_norm."""
    x = _rows(input, normalized_shape)
    centred = x - _mean(x)
    found = (centred / torch.sqrt(_mean(centred * centred) + eps)).view_as(input)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return F.rms_norm."""
    x = _rows(input, normalized_shape)
    found = (x / torch.sqrt(_mean(x * x) + (EPSILON if eps is None else eps))).view_as(input)
    return found if weight is None else found * weight


NORMS: Mapping[Callable[..., Any], Callable[..., Tensor]] = {
    F.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    F.rms_norm: _rms_norm,
    torch.rms_norm: _rms_norm,
}
"""A norm, and how it is made of sums that are taken in turn."""


class NormsInTurn(TorchFunctionMode):
    """See the module."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute a norm of float32 in turn, and leave all else alone."""
        given = kwargs or {}
        norm = NORMS.get(func)
        x = args[0] if args else given.get("input")
        if norm is None or not isinstance(x, Tensor) or x.dtype != torch.float32:
            return func(*args, **given)
        return norm(*args, **given)
