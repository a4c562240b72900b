"""What would bring integer weights nearer to the float32 model, of what an export has not chosen yet.

ways_nearer(options, block_size=128, calibrates=True)
# ['--precision int8 or fp16', '--block-size 64, 32 or 16', '--accuracy-level 0']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpt_onnx.bundle._quantization_info import BLOCK_SIZES

from .options import ExportOptions
from .precisions import PRECISIONS
from .quantize.choice import Choice
from .quantize.quantizers import QUANTIZERS
from .targets import find_target
from .wording import either

NEAREST = ("int4", "int8", "fp16")
"""Precisions that are not float32, the nearest to it last."""


def _after(names: Sequence[str], present: str) -> list[str]:
    return list(names[names.index(present) + 1 :])


def _precisions(options: ExportOptions) -> list[str]:
    """Return the nearer precisions that the target has in this opset."""
    target, (opset, _) = find_target(options.target), options.versions
    return [
        name
        for name in _after(NEAREST, options.precision)
        if name in target.precisions and (target.fuses or opset >= PRECISIONS[name].standard_opset)
    ]


def _of_head(choice: Choice) -> list[str]:
    return [] if choice.head_bits is None else _after(("int4", "int8", "fp32"), f"int{choice.head_bits}")


def _quantizers(choice: Choice, calibrates: bool) -> list[str]:
    better = _after(list(QUANTIZERS), choice.quantizer)
    return [name for name in better if calibrates or not QUANTIZERS[name].calibrated]


def _smaller(block_size: int | None) -> list[int]:
    return [] if block_size is None else [size for size in sorted(BLOCK_SIZES)[::-1] if size < block_size]


_OF_INTEGERS: tuple[tuple[str, Callable[[Choice, int | None, bool], Sequence[object]]], ...] = (
    ("--block-size", lambda choice, size, calibrates: _smaller(size)),
    ("--head-precision", lambda choice, size, calibrates: _of_head(choice)),
    ("--quantizer", lambda choice, size, calibrates: _quantizers(choice, calibrates)),
    ("--accuracy-level", lambda choice, size, calibrates: [0] if choice.accuracy_level else []),
)


def _ways(options: ExportOptions, block_size: int | None, calibrates: bool) -> Iterator[str]:
    if precisions := _precisions(options):
        yield f"--precision {either(precisions)}"
    if (choice := options.choice) is None:
        return
    for option, values in _OF_INTEGERS:
        if found := values(choice, block_size, calibrates):
            yield f"{option} {either(found)}"


def ways_nearer(options: ExportOptions, *, block_size: int | None, calibrates: bool) -> list[str]:
    """Return options with the values that would bring the bundle nearer to float32.

    Args:
        options: Those of the export.
        block_size: Weights that share a scale; None where weights are floats.
        calibrates: Whether the source has what a calibrated quantiser needs.
    """
    return list(_ways(options, block_size, calibrates))
