"""How weights can be stored: one frozen entry a precision, and what of it a user may choose.

>>> find_precision("int4").bits
4
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpt_onnx.errors import ConfigError

FLOAT = "fp32"
HALF = "fp16"
BLOCKS = 21
"""The opset that brought DequantizeLinear with blocks, and integers of 4 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How weights are stored."""

    name: str
    bits: int | None
    """Of a weight in a matrix; None: it is floating point."""
    symmetric: bool
    """Whether the zero point is the middle of the range, and is not stored."""
    block_sizes: tuple[int, ...]
    """Weights that share a scale: the first that divides the model's sizes is the default."""
    quantizer: str | None
    """The default quantiser; docs/quantisation.md has the figures."""
    quantizer_without_text: str | None
    """The default where there is no text to calibrate with, or the model's layers are not known."""
    head: str
    """The default precision of the head and the embedding."""
    standard_opset: int = 0
    """The oldest opset whose standard operators can compute with such weights."""


PRECISIONS: Mapping[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision(
            name=FLOAT,
            bits=None,
            symmetric=False,
            block_sizes=(),
            quantizer=None,
            quantizer_without_text=None,
            head=FLOAT,
        ),
        Precision(
            name=HALF,
            bits=None,
            symmetric=False,
            block_sizes=(),
            quantizer=None,
            quantizer_without_text=None,
            head=HALF,
        ),
        Precision(
            name="int8",
            bits=8,
            symmetric=True,
            block_sizes=(128, 64, 32, 16),
            quantizer="rtn",
            quantizer_without_text="rtn",
            head="int8",
            standard_opset=BLOCKS,
        ),
        Precision(
            name="int4",
            bits=4,
            symmetric=False,
            block_sizes=(128, 64, 32, 16),
            quantizer="gptq",
            quantizer_without_text="hqq",
            head="int8",
            standard_opset=BLOCKS,
        ),
    )
}


def find_precision(name: object) -> Precision:
    """Return a precision by name.

    Raises:
        ConfigError: if there is no such precision.
    """
    if not isinstance(name, str) or name not in PRECISIONS:
        raise ConfigError(f"the precision is {name!r}; known are {', '.join(PRECISIONS)}.")
    return PRECISIONS[name]
