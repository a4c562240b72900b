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
from .merge_constants import merge_constants
from .static_reshapes import static_reshapes
from .strip_traces import strip_traces
from .tidy import tidy
from .transpose_weights import STORED_TRANSPOSED, transpose_weights

__all__ = ["CACHED_PASSES", "KEEP", "PASSES", "STORED_TRANSPOSED", "Pass", "run_passes"]

Pass = Callable[[ir.Model], int]

_BEFORE_HEAD: tuple[Pass, ...] = (strip_traces, fold_constants, static_reshapes, merge_constants, tidy)
_FROM_HEAD: tuple[Pass, ...] = (gemm_head, transpose_weights, tidy)

PASSES: tuple[Pass, ...] = (*_BEFORE_HEAD, *_FROM_HEAD)
"""For graphs that always return all logits."""
CACHED_PASSES: tuple[Pass, ...] = (*_BEFORE_HEAD, keep_logits, *_FROM_HEAD)
"""With ``num_logits_to_keep``: placed before the head is rewritten, whose input it cuts."""


def run_passes(model: ir.Model, passes: tuple[Pass, ...]) -> dict[str, int]:
    """Run the passes in order and return how often each fired, by name."""
    fired: dict[str, int] = {}
    for rewrite in passes:
        fired[rewrite.__name__] = fired.get(rewrite.__name__, 0) + rewrite(model)
    return fired
