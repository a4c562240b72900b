"""Rotary positions: queries and keys are turned by angles that grow with the position ("RoFormer", 3.2.2).

Elements a and b of a pair become (a cos - b sin, b cos + a sin), the angle being position x frequency, so
that a score depends on the distance of query and key alone. Written for whole heads:

    turned = x * cosine + swapped(x) * sine        sine negative for the first of each pair

Elements beyond ``rope_size`` have the frequency 0: cosine 1 and sine 0, which leaves them as they are.

Shapes: B batch, S new tokens, H query heads, K key and value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gpt_onnx.config import GPTConfig
from gpt_onnx.model.sines import HALF, QUARTER, Sines
from gpt_onnx.rope import frequencies

Swap = Callable[[Tensor], Tensor]


class Rotation(NamedTuple):
    """The tables of one forward pass, which all layers share."""

    cosine: Tensor
    """(1 or B, S, 1, D)."""
    sine: Tensor
    """(1 or B, S, 1, D), negative for the first of each pair."""
    swapped: Swap
    """Returns heads whose pairs have changed places; what does not turn may stand anywhere."""

    def slice(self, start: int, stop: int) -> Rotation:
        """Return the tables of some of the tokens."""
        return Rotation(self.cosine[:, start:stop], self.sine[:, start:stop], self.swapped)

    def turn(self, heads: Tensor) -> Tensor:
        """Turn (B, S, any number of heads, D)."""
        return heads * self.cosine + self.swapped(heads) * self.sine


def turn_packed(qkv: Tensor, rotation: Rotation, n_turned: int) -> Tensor:
    """Turn the first ``n_turned`` heads, queries and keys, of a packed projection (B, S, (H + 2K) D)."""
    heads = torch.unflatten(qkv, -1, (-1, rotation.cosine.shape[-1]))  # (B, S, H + 2K, D)
    turned, values = torch.split(heads, [n_turned, heads.shape[-2] - n_turned], dim=-2)
    return torch.cat((rotation.turn(turned), values), dim=-2).flatten(-2)


def swap_halves(size: int, heads: Tensor) -> Tensor:
    """Let the two halves of the first ``size`` elements change places."""
    rest = [heads.shape[-1] - size] if heads.shape[-1] > size else []
    first, second, *still = torch.split(heads, [size // 2, size // 2, *rest], dim=-1)
    return torch.cat((second, first, *still), dim=-1)


def swap_neighbours(size: int, heads: Tensor) -> Tensor:
    """Let elements 2i and 2i + 1 of the first ``size`` change places."""
    order = [element ^ 1 if element < size else element for element in range(heads.shape[-1])]
    return torch.index_select(heads, -1, torch.tensor(order, device=heads.device))


@dataclass(frozen=True, slots=True)
class Style:
    """Which elements of a head are a pair."""

    place: Callable[[int, int], tuple[int, int]]
    """Takes an element and the number of pairs; returns its pair, and whether it is the pair's 0th or 1st."""
    swap: Callable[[int, Tensor], Tensor]
    """Takes rope_size and heads."""


STYLES: Mapping[str, Style] = {
    "half": Style(lambda element, pairs: (element % pairs, element // pairs), swap_halves),
    "interleaved": Style(lambda element, pairs: divmod(element, 2), swap_neighbours),
}


class RotaryPositions(nn.Module):
    """Makes the tables of a forward pass: no parameters, no buffers, any length."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        style, size, still = STYLES[config.rope_style], config.rope_size, config.head_size - config.rope_size
        pairs = frequencies(size, config.rope_theta, config.rope_scaling)
        places = [style.place(element, size // 2) for element in range(size)]
        turning = tuple(pairs[pair] for pair, _ in places) + (0.0,) * still
        signs = tuple(0.0 if second else HALF for _, second in places) + (0.0,) * still
        self.head_size, self.rope_size = config.head_size, size
        self.sines = Sines(turning * 2, (QUARTER,) * config.head_size + signs)
        self.swapped = partial(style.swap, size)

    def forward(self, x: Tensor, position_ids: Tensor | None = None, past_length: int = 0) -> Rotation:
        """Return the tables for the embeddings x (B, S, n_embd), whose length, dtype and device they follow.

        Without position_ids (B, S), the new tokens follow ``past_length`` others.
        """
        if position_ids is None:
            position_ids = (torch.arange(x.shape[1], device=x.device) + past_length).unsqueeze(0)
        table = self.sines(position_ids, x.dtype).unsqueeze(2)  # (1 or B, S, 1, 2 D)
        cosine, sine = torch.split(table, self.head_size, dim=-1)
        return Rotation(cosine, sine, self.swapped)

    def extra_repr(self) -> str:
        """Show the sizes in ``repr``."""
        return f"head_size={self.head_size}, rope_size={self.rope_size}"
