"""How finely a weight is stored: how many bits a number has, and how many numbers share a scale.

>>> Grid(bits=4, block_size=32).levels
16
"""

from __future__ import annotations

from dataclasses import dataclass

from gpt_onnx.bundle._quantization_info import BLOCK_SIZES, WEIGHT_BITS
from gpt_onnx.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A number is ``scale * (q - zero_point)`` with an integer q of ``bits`` bits.

    Raises:
        ConfigError: if MatMulNBits has no such form.
    """

    bits: int
    """Of each q."""
    block_size: int
    """Consecutive inputs of one output that share a scale and a zero point."""
    symmetric: bool = False
    """Whether every zero point is the middle, 2 ** (bits - 1), and is not stored."""

    def __post_init__(self) -> None:
        if self.bits not in WEIGHT_BITS:
            raise ConfigError(f"bits is {self.bits!r}; it must be 4 or 8.")
        if self.block_size not in BLOCK_SIZES:
            known = ", ".join(str(size) for size in BLOCK_SIZES)
            raise ConfigError(f"block_size is {self.block_size!r}; it must be one of {known}.")

    @property
    def levels(self) -> int:
        """The number of values that q can have."""
        return int(2**self.bits)

    @property
    def middle(self) -> int:
        """The zero point of a symmetric grid."""
        return int(2 ** (self.bits - 1))
