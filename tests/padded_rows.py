"""Rows of several lengths as one batch, padded on one side with ids that must count for nothing."""

from __future__ import annotations

Rows = list[list[int]]
AHEAD, BEHIND = 13, 17
"""The ids that stand on the padding."""


def padded_rows(rows: Rows, side: str, length: int) -> tuple[Rows, Rows, Rows]:
    """Return ids, mask and positions, each of ``length`` a row; ``side`` is "left" or "right"."""
    padded, mask, positions = [], [], []
    for row in rows:
        fill = length - len(row)
        ahead, behind = (fill, 0) if side == "left" else (0, fill)
        padded.append([AHEAD] * ahead + row + [BEHIND] * behind)
        mask.append([0] * ahead + [1] * len(row) + [0] * behind)
        positions.append([0] * ahead + list(range(len(row))) + [0] * behind)
    return padded, mask, positions
