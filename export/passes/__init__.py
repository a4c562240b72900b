"""Rewrites of the traced graph: one rule a file, each returning how often it fired.

Parameters take part by name and shape only: their values are bound after the passes, so that nothing here
loads a weight, renames one, or folds one into a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from .fold_constants import fold_constants
from .gemm_head import gemm_head
from .keep_logits import KEEP, keep_logits
from .static_reshapes import static_reshapes
from .tidy import strip_traces, tidy
from .transpose_weights import transpose_weights

__all__ = ["CACHED_PASSES", "KEEP", "PASSES", "run_passes"]

Pass = Callable[[ir.Model], int]

PASSES: tuple[Pass, ...] = (
    strip_traces,
    fold_constants,
    tidy,
    static_reshapes,
    gemm_head,
    transpose_weights,
    tidy,
)
CACHED_PASSES: tuple[Pass, ...] = (*PASSES[:4], keep_logits, *PASSES[4:])
"""With ``num_logits_to_keep``: placed before the head is rewritten, whose input it cuts."""


def run_passes(model: ir.Model, passes: tuple[Pass, ...]) -> dict[str, int]:
    """Run the passes in order and return how often each fired, by name."""
    fired: dict[str, int] = {}
    for rewrite in passes:
        fired[rewrite.__name__] = fired.get(rewrite.__name__, 0) + rewrite(model)
    return fired
