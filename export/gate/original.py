"""Numbers that the original program wrote itself (``--reference FILE``), beside those of the graph.

Agreement with our own reading of a checkpoint says nothing about the reading; this does. Other programs make
the angles of rotary and sinusoidal positions in float32, so that they are themselves off by more the further
a token stands: the unit is measured in our program with such angles, for each stretch of positions alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gpt_onnx.errors import InputError

from .case import Case, Finding, Setting
from .oracle import Oracle
from .original_file import Original
from .reference import Reference, Refused
from .tolerance import MAX_FACTOR, RMS_FACTOR, AnyFloats, FloatArray, Ratio, Unit, ratio_of, worst
from .trial import Trial
from .truth import Truth
from .whole import last_logits

BAND_ENDS = tuple(16 * 4**power for power in range(12))


def widened(unit: Unit, dtype: np.dtype[Any]) -> Unit:
    """Allow one unit more where the stored numbers are float32: they are that far from float64 themselves."""
    if dtype == np.float64:
        return unit
    return Unit(peak=unit.peak * (MAX_FACTOR + 1) / MAX_FACTOR, rms=unit.rms * (RMS_FACTOR + 1) / RMS_FACTOR)


def bands(length: int, first: int = 0) -> list[slice]:
    """Cut positions into parts that grow fourfold: what angles in float32 cost grows with the position."""
    edges = [first, *(edge for edge in BAND_ENDS if first < edge < length), length]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def _ratios(truth: Truth, found: AnyFloats, stored: AnyFloats) -> Iterator[Ratio]:
    """Compare one row (S or 1, V) with what is stored (S or 1, V), on the positions that both have."""
    length = len(truth.ids)
    first = length - min(len(found), len(stored), length - truth.first)
    for band in bands(length, first):
        rows = slice(band.start - length, band.stop - length or None)
        expected: FloatArray = stored[rows].astype(np.float64)
        yield ratio_of(found[rows], expected, widened(truth.unit(band), stored.dtype))


def _truths(oracle: Oracle, original: Original) -> list[Truth]:
    """Compute the file's sequences in a program that makes angles as others do.

    Raises:
        InputError: if the program does not take them.
    """
    try:
        with oracle.measured(float32_angles=True):
            return oracle.truths(original.rows)
    except Refused as exc:
        raise InputError(f"the module itself refuses the input_ids of the reference file: {exc}.") from exc


def check_original(setting: Setting, original: Original) -> Finding:
    """Compare the graph with the stored logits, in units of a float32 that makes angles as others do."""
    truths = _truths(setting.oracle, original)
    found = last_logits(setting, original.rows) if truths[0].first else setting.engine.logits(original.rows)
    rows = zip(truths, found, original.logits, strict=True)
    return Finding(ratio=worst(ratio for row in rows for ratio in _ratios(*row)))


def check_reading(oracle: Oracle, original: Original) -> Finding:
    """Compare a program itself with the stored logits: is the source read rightly?"""
    truths = _truths(oracle, original)
    rows = zip(truths, (truth.logits() for truth in truths), original.logits, strict=True)
    return Finding(ratio=worst(ratio for row in rows for ratio in _ratios(*row)))


def original_cases(
    setting: Setting, original: Original | None, program: Reference | None = None
) -> Iterator[Case]:
    """The stored numbers, if there are any.

    Args:
        setting: Of the bundle.
        original: The numbers.
        program: What is compared with them where the bundle cannot be: its weights are quantised.
    """
    if original is not None:
        batch, length = original.input_ids.shape
        name = f"{batch} x {length} tokens that the original program computed"
        run = partial(check_original, setting)
        if program is not None:
            name, run = f"{name}, beside {program.name}", partial(check_reading, Oracle(program))
        yield Case(group="original", name=name, run=partial(run, original))


class BesideItsNumbers:
    """A reference whose bundle is held against numbers of the original program, if there are any."""

    def own_cases(self, trial: Trial) -> Iterator[Case]:
        """See Reference."""
        yield from original_cases(trial.setting, trial.original)
