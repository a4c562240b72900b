"""The products of a PyTorch program with some of its weights, however it writes them.

    class Mine(WeightProducts):
        def multiplied(self, product, call, block_size): ...

    with Mine.of(module, {"h.0.attn.c_attn.weight": 32}):
        module(ids)

They are found by their weight: ``F.linear``, ``@``, ``addmm``, with the weight itself or a view of it. Only
float32 is met, so a float64 program beside it stays exact.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Argument = tuple[int, str]
"""The place and the name of an argument."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function and what it is given."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    given: Mapping[str, Any]

    def value(self, argument: Argument | None) -> Any:
        """Return an argument; None where there is none."""
        if argument is None:
            return None
        place, name = argument
        return self.args[place] if place < len(self.args) else self.given.get(name)

    def replaced(self, argument: Argument, value: Any) -> Call:
        """Return the same call with another argument."""
        place, name = argument
        if place < len(self.args):
            return Call(self.func, (*self.args[:place], value, *self.args[place + 1 :]), self.given)
        return Call(self.func, self.args, {**self.given, name: value})

    def __call__(self) -> Any:
        """Compute it."""
        return self.func(*self.args, **self.given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Where a function that multiplies has its factors."""

    x: Argument
    weight: Argument
    inputs_last: bool = False
    """Whether the weight is (N, K), and not (K, N)."""
    added: Argument | None = None
    """What is added to the product."""

    def matrix(self, call: Call) -> Tensor:
        """Return the weight as (K, N)."""
        weight: Tensor = call.value(self.weight)
        return weight.T if self.inputs_last else weight

    def finished(self, call: Call, product: Tensor) -> Tensor:
        """Return what the function gives, of the product of its factors."""
        added = call.value(self.added)
        if added is None:
            return product
        beta, alpha = (call.given.get(name, 1) for name in ("beta", "alpha"))
        total: Tensor = beta * added + alpha * product
        return total


PRODUCTS: Mapping[Callable[..., Any], Product] = {
    F.linear: Product(x=(0, "input"), weight=(1, "weight"), inputs_last=True, added=(2, "bias")),
    torch.matmul: Product(x=(0, "input"), weight=(1, "other")),
    Tensor.matmul: Product(x=(0, "self"), weight=(1, "other")),
    Tensor.__matmul__: Product(x=(0, "self"), weight=(1, "other")),
    torch.mm: Product(x=(0, "input"), weight=(1, "mat2")),
    Tensor.mm: Product(x=(0, "self"), weight=(1, "mat2")),
    torch.addmm: Product(x=(1, "mat1"), weight=(2, "mat2"), added=(0, "input")),
    Tensor.addmm: Product(x=(1, "mat1"), weight=(2, "mat2"), added=(0, "self")),
}
"""The functions that multiply by a weight."""


class WeightProducts(TorchFunctionMode):
    """See the module.

    Args:
        program: Whose products are meant; its weights may be exchanged meanwhile.
        blocks: The block size of each weight, by the program's name for it.
    """

    def __init__(self, program: nn.Module, blocks: Mapping[str, int]) -> None:
        super().__init__()
        self._places = []
        for name, size in blocks.items():
            owner, _, leaf = name.rpartition(".")
            self._places.append((program.get_submodule(owner), leaf, size))

    @classmethod
    def of(cls, program: nn.Module, blocks: Mapping[str, int]) -> contextlib.AbstractContextManager[object]:
        """Meet a program's products for as long as it takes; do nothing where no weight is named."""
        return cls(program, blocks) if blocks else contextlib.nullcontext()

    def multiplied(self, product: Product, call: Call, block_size: int) -> Tensor:
        """Return what a call gives that multiplies by a weight of that block size."""
        raise NotImplementedError

    def _block_size(self, weight: object) -> int | None:
        """Return the block size of a named weight or a view of one; None for anything else."""
        if not isinstance(weight, Tensor) or weight.dtype != torch.float32:
            return None
        whole = weight if weight._base is None else weight._base
        sizes = (size for owner, leaf, size in self._places if owner._parameters.get(leaf) is whole)
        return next(sizes, None)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute a product with a named weight by ``multiplied``; leave all else alone."""
        call, product = Call(func, args, kwargs or {}), PRODUCTS.get(func)
        size = None if product is None else self._block_size(call.value(product.weight))
        return call() if product is None or size is None else self.multiplied(product, call, size)
