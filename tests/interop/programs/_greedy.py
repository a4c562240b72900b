"""Greedy continuation of a batch of unequal prompts, padded on the side that a graph takes. numpy alone."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from _order import Order
from _padding import extended, last_places, padded, positions_of


class Loop(Protocol):
    """A graph and its cache."""

    side: str
    """Where padding stands: "left" or "right"."""

    def run(self, ids: Any, mask: Any, positions: Any) -> Any:
        """Logits, (B, S, V)."""


def greedy(loop: Loop, order: Order) -> dict[str, object]:
    """Greedy ids of each prompt."""
    ids, mask = padded(order.prompts, loop.side)
    logits = loop.run(ids, mask, positions_of(mask))
    made = [logits[np.arange(len(ids)), last_places(mask, loop.side)].argmax(axis=1)]
    while len(made) < order.new_tokens:
        mask = extended(mask, loop.side)
        positions = mask.sum(axis=1, keepdims=True) - 1
        made.append(loop.run(made[-1][:, None], mask, positions)[:, -1].argmax(axis=1))
    return {"ids": np.stack(made, axis=1).tolist()}
