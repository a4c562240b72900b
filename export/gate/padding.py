"""Padding: ragged batches, padded on the left and on the right, each row by its own truth.

What stands on padding must not change one bit of a real row, and a row of nothing but padding stays finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from .case import SHORT, Case, Finding, Logits, Setting
from .cases import SEED, Ids
from .tolerance import Ratio, worst

Mask = npt.NDArray[np.int64]
SIDES = ("left", "right")


def mask_of(lengths: Sequence[int], width: int, side: str) -> Mask:
    """Return (B, width): 1 where a token is real."""
    column = np.arange(width)[None, :]
    length = np.array(lengths)[:, None]
    return ((column >= width - length) if side == "left" else (column < length)).astype(np.int64)


def padded(rows: Sequence[Ids], mask: Mask, vocab_size: int, stream: int) -> Mask:
    """Return ids (B, width) with random ones on the padding."""
    ids = np.random.default_rng((SEED, stream)).integers(0, vocab_size, size=mask.shape)
    for row, real, tokens in zip(ids, mask, rows, strict=True):
        row[real == 1] = tokens
    return ids


def _logits(setting: Setting, rows: Sequence[Ids], mask: Mask, stream: int) -> Logits:
    return setting.engine.logits(padded(rows, mask, setting.facts.vocab_size, stream), mask)


def real_parts(found: Logits, mask: Mask) -> list[Logits]:
    """Return the rows of each sequence that are not padding."""
    return [row[real == 1] for row, real in zip(found, mask, strict=True)]


def worst_of_rows(setting: Setting, rows: Sequence[Ids], found: Sequence[Logits]) -> Ratio:
    """Compare each row that has tokens with its truth."""
    pairs = [(row, part) for row, part in zip(rows, found, strict=True) if row]
    truths = setting.oracle.truths([row for row, _ in pairs])
    return worst(truth.ratio(part) for truth, (_, part) in zip(truths, pairs, strict=True))


def check_padding(setting: Setting, rows: Sequence[Ids], width: int, side: str) -> Finding:
    """Compare real positions with each row's truth, twice, with other ids on the padding."""
    mask = mask_of([len(row) for row in rows], width, side)
    found = real_parts(_logits(setting, rows, mask, stream=100), mask)
    again = real_parts(_logits(setting, rows, mask, stream=101), mask)
    ratio = worst_of_rows(setting, rows, found)
    same = all(first.tobytes() == second.tobytes() for first, second in zip(found, again, strict=True))
    return Finding(
        ratio=ratio, fault=None if same else "other ids on the padding change the logits of real tokens"
    )


def check_empty_row(setting: Setting, rows: Sequence[Ids], width: int, side: str) -> Finding:
    """See that a row without one real token is finite and leaves the others alone."""
    mask = mask_of([len(row) for row in rows], width, side)
    found = _logits(setting, rows, mask, stream=102)
    real = real_parts(found, mask)
    ratio = worst_of_rows(setting, rows, real)
    fault = None if np.isfinite(found).all() else "a row of nothing but padding is not finite"
    return Finding(ratio=ratio, fault=fault)


def padding_cases(setting: Setting) -> Iterator[Case]:
    """Both sides at every batch; nothing where only the last position, or only one length, has logits."""
    if setting.last_only or setting.facts.only_length is not None:
        return
    width = setting.facts.within(SHORT)
    ragged = [max(1, width - 2), max(1, width // 2), 1, width]
    for batch in setting.batches:
        lengths = [ragged[row % len(ragged)] for row in range(batch)]
        rows = [row[:length] for row, length in zip(setting.rows(batch), lengths, strict=True)]
        emptied = [() if row == batch // 2 else ids for row, ids in enumerate(rows)]
        for side in SIDES:
            for name, check, chosen in (
                (f"padded on the {side}, batch {batch}", check_padding, rows),
                (f"an empty row, {side}, batch {batch}", check_empty_row, emptied),
            ):
                run = partial(check, setting, chosen, width, side)
                yield Case(group="padding", name=name, run=run)
