"""Weights that a calibrated quantiser makes before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError

from .gpt_source import Source
from .options import ExportOptions
from .quality_texts import Texts, calibration_sequences
from .quantize.grid import Grid
from .quantize.quantized import Quantized
from .quantize.quantizers import find_quantizer

Progress = Callable[[str, int, int], None]
STEP = "calibrate"
LONGEST = 512
"""Tokens of a calibration sequence: memory of attention, and what most models are trained on at least."""


def calibrates(options: ExportOptions) -> bool:
    """Whether weights are quantised on text."""
    return options.choice is not None and find_quantizer(options.choice.quantizer).calibrated


def check_layers_known(source: Source, options: ExportOptions) -> None:
    """Refuse a quantiser that follows text through layers that are not known.

    Raises:
        ConfigError: if it is one.
    """
    if calibrates(options) and source.config is None:
        assert options.choice is not None
        raise ConfigError(
            f"quantizer {options.choice.quantizer!r} follows text through the layers, and those of "
            f"{source.name} are not known; choose rtn or hqq, or describe the module with --names."
        )


def _sequence_length(config: GPTConfig) -> int:
    return min(config.context_length, LONGEST)


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

    from .quantize.calibrate import calibrated

    sequences = [row.tolist() for row in calibration_sequences(texts, _sequence_length(source.config))]
    return calibrated(
        source.config,
        read,
        grids,
        sequences,
        lambda name, done, total: progress(STEP, done, total),
        quantizer=options.choice.quantizer,
    )
