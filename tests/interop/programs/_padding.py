"""Batches of unequal prompts: where padding stands, and how a mask grows. numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def padded(prompts: Sequence[Sequence[int]], side: str) -> tuple[Any, Any]:
    """Ids and mask, (B, S); zeros where there is no token."""
    ids = np.zeros((len(prompts), max(map(len, prompts))), np.int64)
    mask = np.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        place = slice(len(prompt)) if side == "right" else slice(ids.shape[1] - len(prompt), None)
        ids[row, place], mask[row, place] = prompt, 1
    return ids, mask


def positions_of(mask: Any) -> Any:
    """Where each token stands among those that count, (B, S)."""
    return np.maximum(mask.cumsum(axis=1) - 1, 0)


def last_places(mask: Any, side: str) -> Any:
    """Where the last token of each prompt stands, (B,)."""
    return mask.sum(axis=1) - 1 if side == "right" else np.full(len(mask), mask.shape[1] - 1)


def extended(mask: Any, side: str) -> Any:
    """The mask with a token more in each row; padded on the right, it takes the place of padding."""
    longer = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
    return longer if side == "left" else -np.sort(-longer, axis=1)
