"""What rounding the inputs of quantised products to int8 costs, in any PyTorch program.

MatMulNBits with accuracy_level 4 multiplies integers: each row of its input is cut into blocks of
``block_size``, and each block is rounded on a scale of its own.

    scale = max|x| / 127          x  ->  scale * round(x / scale)

    with Int8Inputs.of(module, {"h.0.attn.c_attn.weight": 32}):
        module(ids)               # every product with that weight sees rounded inputs

Only float32 is rounded, so a float64 program beside it stays exact.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from .in_turn import InTurn
from .weight_products import Call, Product, WeightProducts

LARGEST = 127
"""Of the integers: the scale is symmetric."""


def rounded_to_int8(x: Tensor, block_size: int) -> Tensor:
    """Round (..., K) block by block; K is a multiple of the block size."""
    blocks = torch.unflatten(x, -1, (-1, block_size))
    peak = blocks.abs().amax(dim=-1, keepdim=True)
    scale = peak / LARGEST
    inverse = torch.where(peak == 0, 0.0, LARGEST / peak)
    return torch.flatten(torch.round(blocks * inverse) * scale, -2)


class Int8Inputs(WeightProducts):
    """See the module."""

    def multiplied(self, product: Product, call: Call, block_size: int) -> Tensor:
        """See WeightProducts: the input is rounded."""
        found: Tensor = call.replaced(product.x, rounded_to_int8(call.value(product.x), block_size))()
        return found


class Rounding(Protocol):
    """What a bundle rounds while it computes, done in any PyTorch program where units are measured."""

    def during(self, program: nn.Module) -> contextlib.AbstractContextManager[object]:
        """Round what a program in float32 computes, for as long as it takes."""
        ...

    def cached(self, tensor: Tensor) -> Tensor:
        """Return keys or values as the bundle's cache has them."""
        ...

    @property
    def exact(self) -> Rounding:
        """Return what the same bundle costs with exact products."""
        ...


@dataclass(frozen=True, slots=True)
class IntegerProducts:
    """Products with integer weights as ONNX Runtime computes them; nothing where ``blocks`` names none."""

    blocks: Mapping[str, int]
    """The block size of each such weight."""
    kind: type[WeightProducts] = InTurn
    """How: their terms summed one after another, or with inputs that are rounded."""

    def during(self, program: nn.Module) -> contextlib.AbstractContextManager[object]:
        """See Rounding."""
        return self.kind.of(program, self.blocks)

    def cached(self, tensor: Tensor) -> Tensor:
        """See Rounding: a cache is float32."""
        return tensor

    @property
    def exact(self) -> Rounding:
        """See Rounding."""
        return IntegerProducts(self.blocks)


NOTHING: Rounding = IntegerProducts({})
"""A bundle whose weights and products are float32."""
