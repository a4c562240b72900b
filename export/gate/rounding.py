"""What rounding the inputs of quantised products to int8 costs, in any PyTorch program.

MatMulNBits with accuracy_level 4 multiplies integers: each row of its input is cut into blocks of
``block_size``, and each block is rounded on a scale of its own.

    scale = max|x| / 127          x  ->  scale * round(x / scale)

    with inputs_rounded(module, {"h.0.attn.c_attn.weight": 32}):
        module(ids)               # every product with that weight sees rounded inputs

Products are found by their weight, however a program writes them: ``F.linear``, ``@``, ``addmm``, with the
weight itself or a view of it. Only float32 is rounded, so a float64 program beside it stays exact.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

LARGEST = 127
"""Of the integers: the scale is symmetric."""

PRODUCTS: Mapping[Callable[..., Any], tuple[int, int, tuple[str, str]]] = {
    F.linear: (0, 1, ("input", "weight")),
    torch.matmul: (0, 1, ("input", "other")),
    Tensor.matmul: (0, 1, ("self", "other")),
    Tensor.__matmul__: (0, 1, ("self", "other")),
    torch.mm: (0, 1, ("input", "mat2")),
    Tensor.mm: (0, 1, ("self", "mat2")),
    torch.addmm: (1, 2, ("mat1", "mat2")),
    Tensor.addmm: (1, 2, ("mat1", "mat2")),
}
"""A product's function to the places and the names of its input and of its weight."""


def rounded_to_int8(x: Tensor, block_size: int) -> Tensor:
    """Round (..., K) block by block; K is a multiple of the block size."""
    blocks = torch.unflatten(x, -1, (-1, block_size))
    peak = blocks.abs().amax(dim=-1, keepdim=True)
    scale = peak / LARGEST
    inverse = torch.where(peak == 0, 0.0, LARGEST / peak)
    return torch.flatten(torch.round(blocks * inverse) * scale, -2)


class Int8Inputs(TorchFunctionMode):
    """See the module.

    Args:
        program: Whose products are meant; its weights may be exchanged meanwhile.
        blocks: The block size of each quantised weight, by the program's name for it.
    """

    def __init__(self, program: nn.Module, blocks: Mapping[str, int]) -> None:
        super().__init__()
        self._places = []
        for name, size in blocks.items():
            owner, _, leaf = name.rpartition(".")
            self._places.append((program.get_submodule(owner), leaf, size))

    def _block_size(self, weight: object) -> int | None:
        """Return the block size of a quantised weight or a view of one; None for anything else."""
        if not isinstance(weight, Tensor) or weight.dtype != torch.float32:
            return None
        whole = weight if weight._base is None else weight._base
        sizes = (size for owner, leaf, size in self._places if owner._parameters.get(leaf) is whole)
        return next(sizes, None)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Round the input where a quantised weight is multiplied; leave all else alone."""
        given = dict(kwargs or {})
        if func not in PRODUCTS:
            return func(*args, **given)
        *places, names = PRODUCTS[func]
        weight = args[places[1]] if places[1] < len(args) else given.get(names[1])
        size = self._block_size(weight)
        if size is None:
            return func(*args, **given)
        if places[0] < len(args):
            x = rounded_to_int8(args[places[0]], size)
            return func(*args[: places[0]], x, *args[places[0] + 1 :], **given)
        return func(*args, **given | {names[0]: rounded_to_int8(given[names[0]], size)})


def inputs_rounded(
    program: nn.Module, blocks: Mapping[str, int]
) -> contextlib.AbstractContextManager[object]:
    """Round for as long as it takes; nothing where no weight is named. See ``Int8Inputs``."""
    return Int8Inputs(program, blocks) if blocks else contextlib.nullcontext()


class Rounding(Protocol):
    """What a bundle rounds while it computes, done in any PyTorch program where units are measured."""

    def during(self, program: nn.Module) -> contextlib.AbstractContextManager[object]:
        """Round what a program in float32 computes, for as long as it takes."""
        ...

    def cached(self, tensor: Tensor) -> Tensor:
        """Return keys or values as the bundle's cache has them."""
        ...


@dataclass(frozen=True, slots=True)
class Int8Rounding:
    """The inputs of products with integer weights; nothing where ``blocks`` names none."""

    blocks: Mapping[str, int]
    """The block size of each weight whose products see their inputs rounded."""

    def during(self, program: nn.Module) -> contextlib.AbstractContextManager[object]:
        """See Rounding."""
        return inputs_rounded(program, self.blocks)

    def cached(self, tensor: Tensor) -> Tensor:
        """See Rounding: a cache is float32."""
        return tensor


NOTHING: Rounding = Int8Rounding({})
"""A bundle whose weights and products are float32."""
