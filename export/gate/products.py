"""Every product of float32 matrices that a PyTorch program makes, whatever it calls it.

    class Mine(Products):
        def multiplied(self, left, right): ...      # (..., M, K) @ (..., K, N)

    with Mine():
        module(ids)

It stands below PyTorch's functions, where ``F.linear``, ``@``, ``einsum`` and modules of other libraries have
become ``mm``, ``addmm``, ``bmm`` and ``baddbmm``; fused attention is computed in its parts, which are
products as well. Only float32 is met, so a float64 program beside it stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
Multiply = Callable[[Tensor, Tensor], Tensor]
SCORES = 2**24
"""Numbers of attention scores that exist at once: 64 MB."""


def _sum_and_product(
    multiply: Multiply, added: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    return beta * added + alpha * multiply(left, right)


def _linear(multiply: Multiply, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out = multiply(x, weight.transpose(-1, -2))
    return out if bias is None else out + bias


def _by_vector(multiply: Multiply, matrix: Tensor, vector: Tensor) -> Tensor:
    return multiply(matrix, vector.unsqueeze(-1)).squeeze(-1)


def _attention(
    multiply: Multiply,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what fused attention does, (B, H, S, D), a block of queries at a time; there is no dropout."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    length, total = query.shape[-2], key.shape[-2]
    step = max(1, SCORES // max(1, query.shape[0] * query.shape[1] * total))
    blocks = []
    for start in range(0, length, step):
        rows = slice(start, min(start + step, length))
        scores = multiply(query[..., rows, :] * scale, key.transpose(-1, -2))
        if attn_mask is not None:
            scores = scores + attn_mask.expand(*scores.shape[:-2], length, total)[..., rows, :]
        if is_causal:
            later = torch.arange(total) > torch.arange(rows.start, rows.stop).unsqueeze(-1)
            scores = scores.masked_fill(later.to(scores.device), float("-inf"))
        blocks.append(multiply(torch.softmax(scores, dim=-1), value))
    return torch.cat(blocks, dim=-2), query.new_zeros(query.shape[:-1])


PRODUCTS: Mapping[Any, tuple[int, Callable[..., Any]]] = {
    aten.mm.default: (0, lambda multiply, left, right: multiply(left, right)),
    aten.bmm.default: (0, lambda multiply, left, right: multiply(left, right)),
    aten.mv.default: (0, _by_vector),
    aten.addmm.default: (1, _sum_and_product),
    aten.baddbmm.default: (1, _sum_and_product),
    aten.linear.default: (0, _linear),
    aten._scaled_dot_product_flash_attention_for_cpu.default: (0, _attention),
}
"""A product to the place of its first factor, and how it is made of ``multiplied``."""


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__
    """See the module."""

    def multiplied(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the product of two float32 matrices, or of batches of them."""
        raise NotImplementedError

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute a product of float32 by ``multiplied``, and all else as it is."""
        given = kwargs or {}
        place, compute = PRODUCTS.get(func, (0, None))
        if compute is None or args[place].dtype != torch.float32:
            return func(*args, **given)
        return compute(self.multiplied, *args, **given)
