"""Rewrites of the traced graph: one rule a file, each returning how often it fired.

Parameters take part by name and shape only: their values are bound after the passes, so that nothing here
loads a weight, renames one, or folds one into a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from .constant_ranges import constant_ranges
from .fold_constants import fold_constants
from .gemm_head import gemm_head
from .half_products import half_products
from .integer_angles import integer_angles
from .keep_logits import KEEP, keep_logits
from .lower_opset import TRACED, LowerOpset
from .merge_constants import merge_constants
from .quantize_weights import FORMS, QuantizeWeights, fused, standard
from .skip_layer_norm import skip_layer_norm
from .static_reshapes import static_reshapes
from .strip_traces import strip_traces
from .tidy import tidy
from .transpose_weights import STORED_TRANSPOSED, transpose_weights

__all__ = [
    "FORMS",
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

_BEFORE_HEAD: tuple[Pass, ...] = (
    strip_traces,
    fold_constants,
    static_reshapes,
    constant_ranges,
    merge_constants,
    tidy,
)
_FROM_HEAD: tuple[Pass, ...] = (gemm_head, transpose_weights, tidy)


def passes_of(
    *,
    keeps_logits: bool,
    fuses: bool,
    quantize: Pass | None,
    half: bool = False,
    opset: int = TRACED,
    float64: bool = True,
) -> tuple[Pass, ...]:
    """Return the passes of one graph, in order.

    Args:
        keeps_logits: Whether it gets ``num_logits_to_keep``, before the head is rewritten, whose input it
            cuts.
        fuses: Whether it may use operators of com.microsoft.
        quantize: What turns weights into integers, if they are to be.
        half: Whether products become float16.
        opset: Of the graph that is wanted.
        float64: Whether its runtimes compute in float64.
    """
    head = (keep_logits,) if keeps_logits else ()
    integers = (quantize, tidy) if quantize else ()
    fused_norms = (skip_layer_norm, tidy) if fuses else ()
    lowered = (LowerOpset(opset), tidy) if opset < TRACED else ()
    halved = (half_products, tidy) if half else ()
    angles = () if float64 else (integer_angles, tidy)
    return (*_BEFORE_HEAD, *angles, *head, *integers, *_FROM_HEAD, *fused_norms, *halved, *lowered)


def run_passes(model: ir.Model, passes: tuple[Pass, ...]) -> dict[str, int]:
    """Run the passes in order and return how often each fired, by name."""
    fired: dict[str, int] = {}
    for rewrite in passes:
        fired[rewrite.__name__] = fired.get(rewrite.__name__, 0) + rewrite(model)
    return fired
