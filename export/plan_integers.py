"""How weights would become integers, told without doing it: a part of gpt_onnx.export.plan.

>>> integer_plan(source, options, shapes, None).quantizer         # doctest: +SKIP
'gptq'
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt_onnx.bundle._evidence import RANDOM_IDS

from .build import Planned
from .calibration import calibrates, settled
from .footprint import Shapes, block_size_of
from .gpt_source import Source
from .options import ExportOptions

SHIPPED_TEXT = "the public addresses that ship"
NO_TEXT = f"{RANDOM_IDS}, as there is no tokenizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerPlan:
    """How weights would become integers."""

    quantizer: str
    """The one that would be taken: where none is named, one that the source allows."""
    head_precision: str
    """Of head and embedding."""
    block_size: int | None
    """Weights that share a scale; None: no weight becomes integers."""
    accuracy_level: int
    reads_text: bool
    """Whether the quantiser is calibrated on text."""


def integer_plan(
    source: Source, options: ExportOptions, shapes: Shapes, traced: Planned | None
) -> IntegerPlan | None:
    """Say how weights would become integers; None where they would not.

    Args:
        source: The model.
        options: Of the export.
        shapes: Of its weights.
        traced: What a trace says of a module whose inner structure is not known; None for our own GPT.

    Raises:
        ConfigError: if they cannot as asked.
    """
    chosen = settled(source, options)
    choice = chosen.choice
    if choice is None:
        return None
    return IntegerPlan(
        quantizer=choice.quantizer,
        head_precision="fp32" if choice.head_bits is None else f"int{choice.head_bits}",
        block_size=traced.block_size if traced else block_size_of(shapes, choice),
        accuracy_level=choice.accuracy_level,
        reads_text=calibrates(chosen),
    )


def text_read(source: Source, options: ExportOptions) -> str | None:
    """Return what quality would be measured on, and calibration would read; None where nothing is read."""
    if not options.changes_weights:
        return None
    if options.calibration is not None:
        return Path(options.calibration).name
    return NO_TEXT if source.tokenizer is None else SHIPPED_TEXT
