"""What is to become integers in one export, and on which grid.

choice = Choice(grid_bits=4, head_bits=8, ...)
choice.block_size({"h.0.mlp.c_proj.weight": 3072, ...})     # the first that divides them all
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpt_onnx.bundle._quantization_info import BLOCK_SIZES
from gpt_onnx.errors import ConfigError

from .grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How the weights of an export are quantised."""

    bits: int
    """Of the weights within the layers."""
    head_bits: int | None
    """Of the head and the embedding; None: they stay float32."""
    symmetric: bool
    block_sizes: tuple[int, ...]
    """Those that may be taken, the best first; one alone where the user said so."""
    accuracy_level: int
    """Of MatMulNBits."""
    quantizer: str

    def block_size(self, widths: Mapping[str, int]) -> int:
        """Return the first block size that divides the inputs of every weight.

        Args:
            widths: Inputs of each weight that is to be quantised, by its name.

        Raises:
            ConfigError: if there is none.
        """
        distinct = sorted(set(widths.values()))
        for size in self.block_sizes:
            if not any(width % size for width in distinct):
                return size
        name = next(name for name, width in widths.items() if width % min(self.block_sizes))
        raise ConfigError(self._refusal(distinct, name, widths[name]))

    def _refusal(self, widths: list[int], name: str, odd: int) -> str:
        tried = " or ".join(str(size) for size in self.block_sizes)
        fitting = [size for size in BLOCK_SIZES if not any(width % size for width in widths)]
        remedy = (
            f"choose --block-size {' or '.join(str(size) for size in fitting)}"
            if fitting
            else "export it in fp32"
        )
        return f"{name} has {odd} inputs, which blocks of {tried} do not divide; {remedy}."

    def grid(self, block_size: int, *, head: bool) -> Grid | None:
        """Return the grid of a weight; None where it stays float32."""
        bits = self.head_bits if head else self.bits
        return None if bits is None else Grid(bits=bits, block_size=block_size, symmetric=self.symmetric)
