"""What float32 costs in programs beside the original one: each weight a few units in the last place away.

One float32 evaluation shows what float32 costs where many roundings add up. Where few do (a width of two, one
head of one) it is a single draw, and may be small by luck: the mean of two values that are almost equal is
exact or not, and what a LayerNorm makes of them differs twenty times. A program beside it has the same
weights to six digits and its own roundings, and its norms sum in ONNX Runtime's order
(gpt_onnx.export.gate.norms_in_turn). Programs beside are looked at only where a case failed by little
(gpt_onnx.export.gate.gate), so that elsewhere the bounds are what they were.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from .cases import SEED

COUNT = 16
"""Programs beside the original one that are looked at, unless that is too dear."""
SIZE = 2.0**-21
"""Largest relative change of a weight: four units in the last place of float32."""

PIECE = 2**22
"""Numbers that are moved at once."""

Program = TypeVar("Program", bound=nn.Module)


def _moved(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Return a weight whose every number differs by up to SIZE of itself, made a piece at a time."""
    moved = torch.empty_like(weight, memory_format=torch.contiguous_format)
    for part, place in zip(
        *(torch.split(whole.view(-1), PIECE) for whole in (weight.contiguous(), moved)), strict=True
    ):
        noise = torch.rand(part.shape, generator=generator, dtype=torch.float64)
        place.copy_(part * (1 + SIZE * (2 * noise.to(weight.device) - 1)))
    return moved


def nudged(module: Program, count: int) -> Iterator[Program]:
    """Yield copies, one after another, whose every weight differs by up to SIZE of itself."""
    for stream in range(count):
        copied = copy.deepcopy(module)
        generator = torch.Generator().manual_seed(SEED + stream)
        with torch.no_grad():
            for parameter in copied.parameters():
                if parameter.is_floating_point():
                    parameter.copy_(_moved(parameter, generator))
        yield copied


def nudged_reading(read: Callable[[str], Tensor], stream: int) -> Callable[[str], Tensor]:
    """Return what reads the weights of the stream-th program beside one whose weights ``read`` reads.

    They are float32, as those of ``nudged``; each has its own random numbers, so that any order will do.
    """

    def reading(name: str) -> Tensor:
        weight = read(name).to(torch.float32)
        seed = zlib.crc32(f"{SEED + stream} {name}".encode())
        return _moved(weight, torch.Generator().manual_seed(seed))

    return reading
