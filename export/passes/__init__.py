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
from .quantize_weights import QuantizeWeights, fused, standard
from .skip_layer_norm import skip_layer_norm
from .static_reshapes import static_reshapes
from .strip_traces import strip_traces
from .tidy import tidy
from .transpose_weights import STORED_TRANSPOSED, transpose_weights

__all__ = [
    "KEEP",
    "STORED_TRANSPOSED",
    "Pass",
    "QuantizeWeights",
    "fused",
    "passes_of",
    "run_passes",
    "standard",
]

Pass = Callable[[ir.Model], int]

_BEFORE_HEAD: tuple[Pass, ...] = (strip_traces, fold_constants, static_reshapes, merge_constants, tidy)
_FROM_HEAD: tuple[Pass, ...] = (gemm_head, transpose_weights, tidy)


def passes_of(*, keeps_logits: bool, fuses: bool, quantize: Pass | None) -> tuple[Pass, ...]:
    """Return the passes of one graph, in order.

    Args:
        keeps_logits: Whether it gets ``num_logits_to_keep``, before the head is rewritten, whose input it
            cuts.
        fuses: Whether it may use operators of com.microsoft.
        quantize: What turns weights into integers, if they are to be.
    """
    head = (keep_logits,) if keeps_logits else ()
    integers = (quantize, tidy) if quantize else ()
    return (*_BEFORE_HEAD, *head, *integers, *_FROM_HEAD, *((skip_layer_norm, tidy) if fuses else ()))


def run_passes(model: ir.Model, passes: tuple[Pass, ...]) -> dict[str, int]:
    """Run the passes in order and return how often each fired, by name."""
    fired: dict[str, int] = {}
    for rewrite in passes:
        fired[rewrite.__name__] = fired.get(rewrite.__name__, 0) + rewrite(model)
    return fired
