"""What clients of a target can hold: the largest weight, the largest file.

>>> check_tensors(weights, find_target("web"), "fp32")          # doctest: +SKIP
ExportError: wte.weight takes 321.6 MB and a weight of target web at most 268.4 MB; choose ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpt_onnx.errors import ExportError

from .targets import Target
from .weights import Weight

MB = 1e6
SMALLER: Mapping[str, str] = {
    "fp32": "choose --precision fp16, int8 or int4",
    "fp16": "choose --precision int8 or int4",
    "int8": "choose --precision int4 --head-precision int4",
    "int4": "choose --head-precision int4, or a model with a smaller vocabulary",
}
"""What makes a weight smaller, by the precision that it has."""


def too_large(name: str, size: int, target: Target, precision: str) -> str | None:
    """Say that a weight is too large for a target, and what helps; None where it is not."""
    most = target.max_tensor_bytes
    if most is None or size <= most:
        return None
    return (
        f"{name} takes {size / MB:,.1f} MB and a weight of target {target.name} at most {most / MB:,.1f} MB; "
        f"{SMALLER[precision]}."
    )


def check_tensors(weights: Iterable[Weight], target: Target, precision: str) -> None:
    """Refuse weights that clients of the target cannot hold.

    Raises:
        ExportError: naming the largest.
    """
    largest = max(weights, key=lambda weight: weight.nbytes, default=None)
    if largest is None:  # a module need not use what it has
        return
    if told := too_large(largest.name, largest.nbytes, target, precision):
        raise ExportError(told)
