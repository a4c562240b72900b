"""What float16 costs a PyTorch program where a bundle in float16 has it, and nowhere else.

    factors of a product    rounded to float16, weights among them
    its result              rounded to float16; a bias is added in float32
    keys and values         rounded to float16, as the cache has them

    with HALVES.during(program):
        program(ids)

Everything between is float32, as in the graph (gpt_onnx.export.passes.half_products). The sums within a
product are made in float32, as every kernel makes them.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from .products import Products
from .rounding import NOTHING, Rounding


def rounded_to_half(x: Tensor) -> Tensor:
    """Return the nearest float16 of each float32, in float32."""
    return x.to(torch.float16).to(torch.float32)


class HalfProducts(Products):  # type: ignore[no-untyped-call]  # of PyTorch's __init_subclass__
    """Rounds the factors and the result of every product."""

    def multiplied(self, left: Tensor, right: Tensor) -> Tensor:
        """See Products."""
        return rounded_to_half(torch.matmul(rounded_to_half(left), rounded_to_half(right)))


class Halves:
    """See the module and Rounding."""

    def during(self, program: nn.Module) -> contextlib.AbstractContextManager[object]:
        """See Rounding."""
        return HalfProducts()  # type: ignore[no-untyped-call]

    def cached(self, tensor: Tensor) -> Tensor:
        """See Rounding."""
        return rounded_to_half(tensor) if tensor.dtype == torch.float32 else tensor

    @property
    def exact(self) -> Rounding:
        """See Rounding."""
        return NOTHING


HALVES = Halves()
