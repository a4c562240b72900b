"""Does a program compute the same again? One that does not can be compared with nothing.

    check_repeats(module(ids), module(ids))       # ExportError: the module computes other logits ...

What float32 costs is the unit of the gate, and it is measured between two runs of the program: what differs
from run to run by itself (dropout that is left on, random numbers, a clock, a state that is kept) would pass
for that cost and hide any fault of the graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpt_onnx.errors import ExportError

from .tolerance import FLOOR

REMEDY = (
    "switch dropout off in evaluation (F.dropout takes training=self.training), draw no random numbers, read "
    "no clock and keep nothing from one forward to the next"
)


def _gap(first: Tensor, again: Tensor) -> float:
    """Return the largest difference of two tensors; what is no number in both is equal."""
    if first.shape != again.shape:
        return float("inf")
    gap = (again - first).abs()
    both = ~torch.isfinite(first) & ~torch.isfinite(again)
    return float(gap.masked_fill(both, 0).nan_to_num(nan=float("inf")).max())


def check_repeats(first: Tensor, again: Tensor) -> None:
    """See that a module's logits of the same ids, computed twice, are the same up to the order of sums.

    Args:
        first: Logits (..., V) of one run.
        again: Those of another.

    Raises:
        ExportError: if they differ by more than a few roundings of the largest.
    """
    gap, largest = _gap(first, again), float(first.masked_fill(~torch.isfinite(first), 0).abs().max())
    if gap > FLOOR * largest:
        share = gap / largest if largest else float("inf")
        raise ExportError(
            f"the module computes other logits each time it runs on the same ids, by up to {share:.2g} of "
            f"the largest: {REMEDY}."
        )
