"""ALiBi: a score falls with the distance of query and key, each head at a slope of its own.

    bias of head h = slope h x (place of the key - place of the query)

"Train Short, Test Long" (Press, Smith and Lewis). A place counts the tokens of a row, without padding.

    >>> slopes(4)
    (0.25, 0.0625, 0.015625, 0.00390625)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def slopes(n_head: int) -> tuple[float, ...]:
    """Return 2^(-8 h / n_head) for h from 1, where n_head is a power of two.

    Other numbers of heads take the slopes of the power of two below, and then every other one of the next
    power's, as the authors' program does.
    """
    power = 1 << (n_head.bit_length() - 1)
    below = [2.0 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2.0 ** (-4 * head / power) for head in range(1, 2 * power + 1, 2)]
    return tuple((below + between)[:n_head])


def token_places(tokens: Tensor, attention_mask: Tensor | None, past_length: int) -> Tensor:
    """Return the place of each cached and new token, (1 or B, T); only their differences mean anything.

    Args:
        tokens: The new tokens, (B, S).
        attention_mask: 1 where a token counts, (B, T); None where all do.
        past_length: P.
    """
    if attention_mask is None:
        return torch.arange(past_length + tokens.shape[1], device=tokens.device).unsqueeze(0)
    return attention_mask.to(torch.int64).cumsum(dim=1)


@dataclass(frozen=True, slots=True)
class Alibi:
    """Makes the bias of a forward pass, which all layers share."""

    n_head: int

    def __call__(self, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
        """Return (1 or B, H, S, T) from the places of queries (1 or B, S) and of keys (1 or B, T)."""
        slope = torch.tensor(slopes(self.n_head), dtype=dtype, device=keys.device)
        distance = keys.unsqueeze(1) - queries.unsqueeze(2)  # (1 or B, S, T)
        return distance.to(dtype).unsqueeze(1) * slope.unsqueeze(-1).unsqueeze(-1)
