"""Weights that a calibrated quantiser makes before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpt_onnx.errors import ConfigError

from .gpt_source import Source
from .options import ExportOptions
from .quantize.grid import Grid
from .quantize.quantized import Quantized
from .quantize.quantizers import find_quantizer

Progress = Callable[[str, int, int], None]


def calibrated_weights(
    source: Source, options: ExportOptions, grids: Mapping[str, Grid], progress: Progress
) -> Mapping[str, Quantized]:
    """Quantise weights in the order in which data flows through them; nothing where text is not used.

    Raises:
        ConfigError: if the quantiser needs to know the model's layers, and they are not known.
    """
    choice = options.choice
    if choice is None or not find_quantizer(choice.quantizer).calibrated:
        return {}
    if source.config is None:
        raise ConfigError(
            f"quantizer {choice.quantizer!r} follows text through the layers, and those of {source.name} are "
            "not known; choose rtn or hqq, or describe the module with --names."
        )
    raise ConfigError("calibration is not there yet.")
