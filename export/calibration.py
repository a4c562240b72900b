"""Weights that a calibrated quantiser makes before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from gpt_onnx.errors import ConfigError

from .gpt_source import Source
from .options import ExportOptions
from .precisions import find_precision
from .quality_texts import Texts, calibration_sequences
from .quantize.calibrate import calibrated
from .quantize.grid import Grid
from .quantize.quantized import Quantized
from .quantize.quantizers import find_quantizer

Progress = Callable[[str, int, int], None]
STEP = "calibrate"
LONGEST = 512
"""Tokens of a calibration sequence: memory of attention, and what most models are trained on at least."""


WHY_NOT = {
    True: ("the layers of a module are not known", "describe the module with --names"),
    False: ("there is no tokenizer", "give text with --tokenizer, or ids with --calibration FILE.npy"),
}
"""Why another quantiser was taken, and what helps, by whether the layers are unknown."""


def calibrates(options: ExportOptions) -> bool:
    """Whether weights are quantised on text."""
    return options.choice is not None and find_quantizer(options.choice.quantizer).calibrated


def _has_text(source: Source, options: ExportOptions) -> bool:
    return source.tokenizer is not None or options.calibration is not None


def may_calibrate(source: Source, options: ExportOptions) -> bool:
    """Whether a source has what a calibrated quantiser needs: layers that are known, and text."""
    return source.config is not None and _has_text(source, options)


def settled(source: Source, options: ExportOptions) -> ExportOptions:
    """Return the options with a quantiser that the source allows, where the user named none.

    Raises:
        ConfigError: if the user named one that follows text through layers which are not known.
    """
    if not calibrates(options):
        return options
    if source.config is None and options.quantizer is not None:
        raise ConfigError(
            f"quantizer {options.quantizer!r} follows text through the layers, and those of {source.name} "
            "are not known; choose rtn or hqq, or describe the module with --names."
        )
    if options.quantizer is not None and not _has_text(source, options):
        raise ConfigError(
            f"quantizer {options.quantizer!r} reads text, and {source.name} has no tokenizer for it; "
            "choose rtn or hqq, give --tokenizer, or ids with --calibration FILE.npy."
        )
    if options.quantizer is None and not may_calibrate(source, options):
        return replace(options, quantizer=find_precision(options.precision).quantizer_without_text)
    return options


SLOW_PRODUCTS: Mapping[int, str] = {
    8: "int8 is then slower than fp32, some ten to forty times slower than at level 4",
    4: "int4 then generates at about a third of the speed of level 4",
}
"""What products cost that round nothing, by the bits of a weight; docs/performance.md has the figures."""


def note_on_speed(options: ExportOptions) -> tuple[str, ...]:
    """Say that ONNX Runtime has no fast kernel for what was asked for."""
    choice = options.choice
    if choice is None or choice.accuracy_level:
        return ()
    return (f"ONNX Runtime multiplies slowly with --accuracy-level 0: {SLOW_PRODUCTS[choice.bits]}.",)


def note_on(source: Source, asked: ExportOptions, options: ExportOptions) -> tuple[str, ...]:
    """Say that another quantiser than the usual was taken."""
    if asked.choice is None or options.choice is None or asked.choice == options.choice:
        return ()
    why, remedy = WHY_NOT[source.config is None]
    return (
        f"Integers were chosen by {options.choice.quantizer}, as {why}; for {asked.choice.quantizer}, which "
        f"is closer to fp32, {remedy}.",
    )


def sequence_length(source: Source, options: ExportOptions) -> int:
    """Return the tokens of a sequence that text is cut into: no more than the model was trained on."""
    info = source.model_info(options)
    return min(length or LONGEST for length in (info.context_length, info.position_limit, LONGEST))


def calibrated_weights(
    source: Source, options: ExportOptions, grids: Mapping[str, Grid], texts: Texts | None, progress: Progress
) -> Mapping[str, Quantized]:
    """Quantise weights in the order in which data flows through them; nothing where text is not used.

    Args:
        source: The model.
        options: With the quantiser.
        grids: Each weight that is to be integers, by the source's name.
        texts: What to calibrate with.
        progress: Told of each weight that is done.

    Raises:
        ConfigError: if the text makes no sequence.
    """
    if not calibrates(options) or source.config is None or texts is None or options.choice is None:
        return {}

    def read(name: str) -> Tensor:
        return torch.from_numpy(source.weight(name))

    progress(STEP, 0, len(grids))
    sequences = [row.tolist() for row in calibration_sequences(texts, sequence_length(source, options))]
    return calibrated(
        source.config,
        read,
        grids,
        sequences,
        lambda name, done, total: progress(STEP, done, total),
        quantizer=options.choice.quantizer,
    )
