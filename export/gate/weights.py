"""Stored weights beside those of the source: integers that are the right ones, floats that are the same bits.

    check_rounded(weight, quantized, nearest=True)     None, or what is wrong in one clause

A graph with quantised weights is compared with a program that has the same quantised weights, so a wrong one
would be wrong on both sides. Here each is held against the number that it stands for:

    nearest      w is rounded to the nearest number of its block's lattice; beyond its ends, to the end. Holds
                 for every quantiser that looks at weights alone, and sees one integer that is off by one.
                 What a block loses is within BLOCK, so that the lattice is not too wide.
    any other    A calibrated quantiser moves weights to make up for others, far where inputs are much alike:
                 what the weight loses is within WEIGHT, and it and each of its rows still point where the
                 source's do, within SHARE and ROW_SHARE. Which integers are right only the quantiser knows.

Losses are |w - w'| over |w| as root mean squares. The share of w in w' is w . w' / w . w: 1 of the weight
itself, about 0 of another one, as of a row in another row's place, and s where scales are s times as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.export.quantize.quantized import Quantized
from gpt_onnx.export.quantize.stored import pieces

GROUP = "weights"
"""Of the cases that look at stored weights."""
HALF = 0.5 + 2.0**-10
"""Steps between a number and the nearest of a lattice, with what float32 adds where both are far from 0."""

TINY = 2.0**-118
"""Least size of a block that losses are held against: below, float32 has not the digits for a scale."""


BLOCK: Mapping[int, float] = {4: 0.75, 8: 0.06}
"""By bits; 256 numbers that are half a step beside one of 15 steps lose 0.47 in 4 bits, and 0.03 in 8."""
WEIGHT: Mapping[int, float] = {4: 0.75, 8: 0.1}
"""By bits; GPTQ with inputs of half their rank and outliers came to 0.51 in 4 bits, and 0.054 in 8."""
SHARE: Mapping[int, float] = {4: 0.35, 8: 0.06}
"""How far the share of the source in a weight may be from 1, by bits. GPTQ came to 0.21 in 4 bits and to 0.02
in 8, with inputs of low rank, outliers or means of ten deviations, and weights of heavy tails."""
ROW_SHARE: Mapping[int, float] = {4: 0.85, 8: 0.3}
"""The same of a row; the largest were 0.62 and 0.1."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of a weight, block by block."""

    start: int
    weight: NDArray[np.float64]
    """(n, n_blocks, block_size)."""
    losses: NDArray[np.float64]
    """w - w', of the same shape."""
    quantized: Quantized
    """Of the same rows."""

    def sums(self) -> NDArray[np.float64]:
        """Return of each row |w - w'|^2, w . (w - w') and w . w, (3, n)."""
        products = (self.losses * self.losses, self.weight * self.losses, self.weight * self.weight)
        return np.array([product.sum(axis=(1, 2)) for product in products])


def _pieces(weight: NDArray[Any], quantized: Quantized) -> Iterator[_Rows]:
    for rows, part in pieces(quantized):
        values = np.asarray(weight[rows], np.float64).reshape(*part.scales.shape, part.grid.block_size)
        yield _Rows(rows.start, values, values - part.dequantized().reshape(values.shape), part)


def _unlike(rows: _Rows) -> tuple[int, int] | None:
    """Return row and input of the first number that is not rounded to the nearest; None where all are."""
    scales = rows.quantized.scales.astype(np.float64)[..., None]
    steps = rows.losses / scales
    integers = rows.quantized.integers().reshape(steps.shape)
    beyond = ((integers == 0) & (steps < 0)) | ((integers == rows.quantized.grid.levels - 1) & (steps > 0))
    wrong = ~(np.abs(steps) <= HALF) & ~beyond
    if not wrong.any():
        return None
    row, block, place = (int(index[0]) for index in np.nonzero(wrong))
    return rows.start + row, block * rows.quantized.grid.block_size + place


def _rms(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.sqrt(np.square(values).mean(axis=-1))
    return found


def _fault(rows: _Rows, worst: float) -> str | None:
    """Say which number of some rows is not the nearest, or which block loses too much."""
    if (found := _unlike(rows)) is not None:
        return f"is not rounded to the nearest at {list(found)}"
    share = _rms(rows.losses) / np.maximum(_rms(rows.weight), TINY)
    if (share <= worst).all():
        return None
    row, block = (int(index[0]) for index in np.nonzero(~(share <= worst)))
    return (
        f"differs by {share[row, block]:.0%} in block {block} of row {rows.start + row}; "
        f"{rows.quantized.grid.bits} bits lose at most {worst:.0%}"
    )


def _strayed(lost: float, of: str, bits: int, limit: float) -> str | None:
    """Say that a weight or a row has too little of the source in it, or too much; None where it has not."""
    if abs(lost) <= limit:
        return None
    return f"has {1 - lost:.2f} of the source{of}; {bits} bits leave {1 - limit:.2f} to {1 + limit:.2f}"


def _strayed_row(start: int, sums: NDArray[np.float64], bits: int) -> str | None:
    """Say which of some rows is another one; None where none is."""
    lost = sums[1] / np.maximum(sums[2], TINY**2)
    row = int(np.argmax(np.abs(lost)))  # NaN is the largest
    return _strayed(float(lost[row]), f" in row {start + row}", bits, ROW_SHARE[bits])


def _lost(sums: NDArray[np.float64], bits: int) -> str | None:
    """Say that a weight lost too much; None where it did not."""
    share = float(np.sqrt(sums[0] / max(sums[2], TINY**2)))
    return (
        None
        if share <= WEIGHT[bits]
        else f"differs by {share:.0%}; {bits} bits lose at most {WEIGHT[bits]:.0%}"
    )


def check_rounded(weight: NDArray[Any], quantized: Quantized, *, nearest: bool) -> str | None:
    """Say what is wrong with a quantised weight; None where nothing is.

    Args:
        weight: What it stands for, (N, K).
        quantized: As it is stored.
        nearest: Whether each number must be the nearest of its block's lattice.
    """
    if weight.shape != quantized.shape:
        return f"is stored as {list(quantized.shape)}; the source has {list(weight.shape)}"
    bits, whole = quantized.grid.bits, np.zeros(3)
    for rows in _pieces(weight, quantized):
        sums = rows.sums()
        fault = _fault(rows, BLOCK[bits]) if nearest else _strayed_row(rows.start, sums, bits)
        if fault is not None:
            return fault
        whole += sums.sum(axis=1)
    fault = _lost(whole, bits)
    return fault if nearest else fault or _strayed(whole[1] / max(whole[2], TINY**2), "", bits, SHARE[bits])


def same_numbers(first: Quantized, second: Quantized) -> bool:
    """Whether two weights mean the same, bit for bit, whatever their bytes."""
    if first.shape != second.shape:
        return False
    pairs = zip(pieces(first), pieces(second), strict=True)
    return all(np.array_equal(one.dequantized(), other.dequantized()) for (_, one), (_, other) in pairs)


def check_float(weight: NDArray[Any], stored: NDArray[Any]) -> str | None:
    """Say what is wrong with a weight that stayed float32, perhaps inputs first; None where nothing is."""
    if any(stored.shape == form.shape and np.array_equal(stored, form) for form in (weight, weight.T)):
        return None
    return f"is float32 {list(stored.shape)} and not bit for bit the source's {list(weight.shape)}"


def first_fault(faults: Iterable[str | None]) -> str | None:
    """Return the first that is one."""
    return next((fault for fault in faults if fault is not None), None)
