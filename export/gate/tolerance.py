"""How far two computations of the same numbers may be apart: in units of what float32 itself costs.

    unit      = max(e32, 8 * 2^-24 * max|R64|)      e32 = max|F32 - R64|
    max|X - R64| <= 4 * unit                         and the same of root mean squares, with 3 for 4

R64 is the original program in float64, F32 the same program in float32, X the graph. Where a case fails by
little, e32 is taken again, as the largest over this program and some beside it (gpt_onnx.export.gate.nudged).
A fixed tolerance lets real faults through or refuses correct graphs (docs/parity.md). Every comparison is
written so that NaN fails.

    >>> truth = RowErrors.measure(np.ones((1, 4), np.float32), np.ones((1, 4)))
    >>> ratio_of(np.ones((1, 4)), np.ones((1, 4)), truth.unit()).passed
    True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
AnyFloats = npt.NDArray[np.floating]

MAX_FACTOR = 4.0
"""Largest accepted max-error, in units. Correct graphs of 100 GPTs reached 2.7; the mildest fault 7.5."""
RMS_FACTOR = 3.0
"""Largest accepted RMS error, in units. Correct graphs reached 2.2."""
FLOOR = 8 * 2.0**-24
"""Least unit, relative to the numbers themselves: a few roundings, where F32 happens to hit R64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What float32 costs on some set of numbers: the largest error and the root mean square."""

    peak: float
    rms: float

    @property
    def bounds(self) -> tuple[float, float]:
        """The largest accepted max-error and RMS error."""
        return MAX_FACTOR * self.peak, RMS_FACTOR * self.rms


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """An error in units; ``inf`` where a number is not finite."""

    peak: float
    rms: float

    @property
    def passed(self) -> bool:
        """Whether both are within their factors; NaN is not."""
        return self.peak <= MAX_FACTOR and self.rms <= RMS_FACTOR

    @property
    def severity(self) -> float:
        """How far towards its bound the worse of the two is: above 1 fails."""
        return max(self.peak / MAX_FACTOR, self.rms / RMS_FACTOR)


def worst(ratios: Iterable[Ratio]) -> Ratio:
    """Return the largest max-ratio and the largest RMS ratio of several comparisons."""
    peaks, squares = [0.0], [0.0]
    for ratio in ratios:
        peaks.append(ratio.peak)
        squares.append(ratio.rms)
    return Ratio(peak=max(peaks), rms=max(squares))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowErrors:
    """Errors of F32 against R64 for each row (position), so that any set of rows has its unit at once."""

    peak_error: FloatArray
    square_error: FloatArray
    peak: FloatArray
    square: FloatArray
    width: int
    """Numbers in a row."""

    @classmethod
    def measure(cls, f32: AnyFloats, r64: AnyFloats) -> RowErrors:
        """Compare two arrays (rows, ...) of the same shape."""
        truth = r64.reshape(len(r64), -1).astype(np.float64, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):  # such a unit is met by nothing
            error = f32.reshape(truth.shape).astype(np.float64) - truth
            return cls(
                peak_error=np.abs(error).max(axis=1),
                square_error=np.square(error).sum(axis=1),
                peak=np.abs(truth).max(axis=1),
                square=np.square(truth).sum(axis=1),
                width=truth.shape[1],
            )

    @classmethod
    def join(cls, parts: Sequence[RowErrors]) -> RowErrors:
        """Put the rows of several one after another."""
        return cls(
            peak_error=np.concatenate([part.peak_error for part in parts]),
            square_error=np.concatenate([part.square_error for part in parts]),
            peak=np.concatenate([part.peak for part in parts]),
            square=np.concatenate([part.square for part in parts]),
            width=parts[0].width,
        )

    @classmethod
    def largest(cls, parts: Sequence[RowErrors]) -> RowErrors:
        """Take for each row the largest error of several evaluations against the same R64."""
        return cls(
            peak_error=np.max([part.peak_error for part in parts], axis=0),
            square_error=np.max([part.square_error for part in parts], axis=0),
            peak=parts[0].peak,
            square=parts[0].square,
            width=parts[0].width,
        )

    def prefix(self, rows: int) -> RowErrors:
        """Return the first rows alone."""
        return RowErrors(
            peak_error=self.peak_error[:rows],
            square_error=self.square_error[:rows],
            peak=self.peak[:rows],
            square=self.square[:rows],
            width=self.width,
        )

    def unit(self, rows: slice | Sequence[int] = slice(None)) -> Unit:
        """Return the unit of some rows taken together."""
        numbers = self.width * len(self.peak[rows])
        error = math.sqrt(float(self.square_error[rows].sum()) / numbers)
        size = math.sqrt(float(self.square[rows].sum()) / numbers)
        return Unit(
            peak=max(float(self.peak_error[rows].max()), FLOOR * float(self.peak[rows].max())),
            rms=max(error, FLOOR * size),
        )


def ratio_of_blocks(blocks: Iterable[tuple[AnyFloats, FloatArray]], unit: Unit) -> Ratio:
    """Compare blocks of what a graph computed with what they should be, as one set of numbers, in units.

    No error is ratio 0 whatever the unit; a wrong shape or anything that is not finite is ratio infinity.
    """
    peak, square, numbers = 0.0, 0.0, 0
    for found, expected in blocks:
        if found.shape != expected.shape or not np.isfinite(found).all():
            return Ratio(peak=math.inf, rms=math.inf)
        error = found.astype(np.float64) - expected
        peak = float(np.abs(error).max(initial=peak))
        square += float(np.square(error).sum())
        numbers += error.size
    return Ratio(
        peak=_in_units(peak, unit.peak), rms=_in_units(math.sqrt(square / max(numbers, 1)), unit.rms)
    )


def ratio_of(found: AnyFloats, expected: FloatArray, unit: Unit) -> Ratio:
    """Compare one array; see ``ratio_of_blocks``."""
    return ratio_of_blocks([(found, expected)], unit)


def _in_units(error: float, unit: float) -> float:
    if error == 0.0:
        return 0.0
    sound = math.isfinite(error) and math.isfinite(unit) and unit > 0.0
    return error / unit if sound else math.inf
