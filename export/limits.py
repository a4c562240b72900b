"""What clients of a target can hold: the largest weight, the largest file.

>>> check_tensors(weights, find_target("web"), bits=32)          # doctest: +SKIP
ExportError: wte.weight takes 321.6 MB and a weight of target web at most 268.4 MB; choose ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpt_onnx.errors import ExportError

from .targets import Target
from .weights import Weight

MB = 1e6
SMALLER: Mapping[str, int] = {
    "--precision fp16": 16,
    "--precision int8": 8,
    "--precision int4 --head-precision int4": 4,
}
"""Options, and the bits of a number in the largest weight with them."""
NOTHING_HELPS = "no precision makes it small enough; choose a model with a smaller vocabulary"


def _remedy(size: int, most: int, bits: int) -> str:
    """Return the options with which a weight of so many bytes would be small enough."""
    enough = [words for words, fewer in SMALLER.items() if size * fewer <= most * bits]
    return f"choose {' or '.join(enough)}" if enough else NOTHING_HELPS


def too_large(name: str, size: int, target: Target, bits: int) -> str | None:
    """Say that a weight is too large for a target, and what helps; None where it is not.

    Args:
        name: Of the weight.
        size: Its bytes.
        target: Whose clients are to hold it.
        bits: Of each of its numbers.
    """
    most = target.max_tensor_bytes
    if most is None or size <= most:
        return None
    return (
        f"{name} takes {size / MB:,.1f} MB and a weight of target {target.name} at most {most / MB:,.1f} MB; "
        f"{_remedy(size, most, bits)}."
    )


def check_tensors(weights: Iterable[Weight], target: Target, bits: int) -> None:
    """Refuse weights that clients of the target cannot hold.

    Raises:
        ExportError: naming the largest.
    """
    largest = max(weights, key=lambda weight: weight.nbytes, default=None)
    if largest is None:  # a module need not use what it has
        return
    if told := too_large(largest.name, largest.nbytes, target, bits):
        raise ExportError(told)
