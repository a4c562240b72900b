"""What products cost in float32 when their terms are added one after another, in any PyTorch program.

ONNX Runtime's MatMulNBits with accuracy_level 0 does so where it has several rows: the sum of K terms is
rounded K times, where a BLAS keeps partial sums and adds those. Measured on two AVX-512 cores (terms of
standard normal numbers; errors in units of PyTorch's), for 2 rows and for 66:

    K        MatMulNBits     one after another    MatMul
    768      3.7    1.4      3.7    1.4           2.2    0.8
    1280     3.6    1.9      3.7    1.9           1.8    0.9
    5120     4.1    3.6      4.1    3.6           0.9    0.9

    with InTurn.of(module, {"h.0.attn.c_attn.weight": 32}):
        module(ids)               # every product with that weight

A group of n terms is added at once, and the sum is rounded to a unit in the last place that is sqrt(n) times
as large: one such rounding has the variance of n plain ones, u^2 / 12 each, at a small part of their cost.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .weight_products import Call, Product, WeightProducts

GROUPS = 16
"""At least so many groups, so that the sum grows in the grouped terms as it does in single ones."""
LARGEST_GROUP = 64
"""Terms; sums of so few cost little themselves."""
ROWS = 32
"""Rows at once, so that their sums stay in a core's cache."""


def _group(terms: int) -> int:
    """Return how many of so many terms are added at once: a power of 4, whose root is a power of 2."""
    size = 1
    while 4 * size <= min(terms // GROUPS, LARGEST_GROUP):
        size *= 4
    return size


def _coarse(total: Tensor, times: float) -> Tensor:
    """Round float32 to units in the last place so many times as large, a power of 2 (Dekker 1971)."""
    large = total * (times + 1)
    return large - (large - total)


def _sums(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply (M, K) by (K, N)."""
    size, total = _group(len(matrix)), x.new_zeros(len(x), matrix.shape[1])
    for columns, terms in zip(torch.split(x, size, dim=1), torch.split(matrix, size), strict=True):
        total = _coarse(torch.addmm(total, columns, terms), math.sqrt(size))
    return total


def product_in_turn(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply (..., K) by (K, N), with the error of sums that are taken term by term."""
    rows = torch.split(x.reshape(-1, x.shape[-1]), ROWS)
    return torch.cat([_sums(some, matrix) for some in rows]).reshape(*x.shape[:-1], matrix.shape[1])


class InTurn(WeightProducts):
    """See the module."""

    def multiplied(self, product: Product, call: Call, block_size: int) -> Tensor:
        """See WeightProducts."""
        return product.finished(call, product_in_turn(call.value(product.x), product.matrix(call)))
