"""What is checked before ONNX Runtime sees a request, and after it answered.

ONNX Runtime lets negative ids wrap around, broadcasts a mask that is too short, and computes with an empty
sequence; NaN logits make every greedy token 0. Each of these is an error here, with one message on every
provider.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError, InputError

from ._arguments import counted, shown

Ids: TypeAlias = NDArray[np.int64]
IdRow: TypeAlias = Sequence[int] | NDArray[np.integer[Any]]
IdRows: TypeAlias = Sequence[IdRow] | NDArray[np.integer[Any]]
IdBatch: TypeAlias = IdRows | IdRow
"""Rows, or one row by itself."""


class LengthWarning(UserWarning):
    """A sequence went beyond the length that the model was trained on."""


def is_row(value: object) -> bool:
    """Whether a value may hold ids: a text is a sequence too, and a numpy array may be one number alone."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def as_ids(values: IdRow, vocab_size: int, what: str) -> Ids:
    """Return token ids as an int64 array (S,), which may be empty; ``what`` names them in errors.

    Raises:
        InputError: if they are not integers in [0, vocab_size), or not one-dimensional.
    """
    if not is_row(values):
        raise InputError(f"{what} is a {type(values).__name__}; it must be a list of token ids.")
    try:
        ids = np.asarray(values)
    except ValueError as exc:  # ragged
        raise InputError(f"{what} is not a list of token ids; give integers, one a token.") from exc
    if ids.ndim != 1:
        raise InputError(f"{what} has {counted(ids.ndim, 'dim')}; it must be one list of token ids.")
    if ids.size == 0:
        return np.zeros(0, np.int64)
    if ids.dtype.kind not in "iu":
        raise InputError(f"{what} holds {ids.dtype} values such as {shown(ids[0])}; token ids are integers.")
    if ids.min() < 0 or ids.max() >= vocab_size:
        at = int(np.flatnonzero((ids < 0) | (ids >= vocab_size))[0])
        raise InputError(
            f"{what} has the id {ids[at]} at index {at}; ids must be from 0 to {vocab_size - 1}."
        )
    return ids.astype(np.int64, copy=False)


def as_batch(batch: IdBatch, vocab_size: int, what: str = "prompt") -> list[Ids]:
    """Return the rows of a batch, each an int64 array; one flat list of ids is a batch of one.

    Raises:
        InputError: if there is no row, or a row is empty or has an id outside the vocabulary.
    """
    if not is_row(batch):
        raise InputError(f"{what} is a {type(batch).__name__}; it must be a list of token ids.")
    if len(batch) == 0:
        raise InputError(f"{what} is empty; give at least one token id.")
    rows: Any = batch if is_row(batch[0]) else [batch]
    ids = [as_ids(row, vocab_size, f"{what} {index}") for index, row in enumerate(rows)]
    if empty := [index for index, row in enumerate(ids) if row.size == 0]:
        raise InputError(f"{what} {empty[0]} is empty; give at least one token id.")
    return ids


def as_mask(mask: Any, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return an attention mask (B, S) as booleans.

    Raises:
        InputError: if it is of another shape or holds anything but 0 and 1.
    """
    try:
        array = np.asarray(mask)
    except ValueError as exc:  # ragged
        raise InputError(f"attention_mask has rows of unequal length; it must have shape {shape}.") from exc
    if array.shape != shape:
        raise InputError(
            f"attention_mask has shape {array.shape}; input_ids has {shape}, and it must be the same."
        )
    if array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        raise InputError("attention_mask holds something else than 0 and 1; 1 marks a token that counts.")
    return array.astype(np.bool_)


def check_room(lengths: Sequence[int], limit: int | None) -> None:
    """Refuse rows of so many tokens that the positions or the frozen cache have no room for them.

    Raises:
        InputError: if a row would be longer than the limit.
    """
    if limit is None or max(lengths) <= limit:
        return
    row = next(row for row, length in enumerate(lengths) if length > limit)
    raise InputError(
        f"row {row} would have {counted(lengths[row], 'token')} and the maximum context window is {limit}; "
        "shorten it, or slide the window."
    )


def check_finite(logits: Sequence[NDArray[Any]], origin: object) -> None:
    """Refuse logits that hold NaN or an infinity; ``origin`` names the graph.

    Raises:
        BundleError: with the row and the position of the first one.
    """
    for row, values in enumerate(logits):
        if not np.isfinite(values).all():
            at = int(np.argwhere(~np.isfinite(values))[0][0])
            raise BundleError(
                f"{origin} returned NaN or infinite logits (row {row}, new token {at}) instead of finite; "
                "its weights overflow or are damaged: export it again, if need be from an earlier checkpoint."
            )


class TrainedLength:
    """Warns once when a sequence goes beyond the length that the model was trained on."""

    def __init__(self, context_length: int | None) -> None:
        self.left = context_length
        """The length; None once it was warned of."""

    def note(self, length: int) -> None:
        """Take notice of a sequence of ``length`` tokens."""
        if self.left is None or length <= self.left:
            return
        trained, self.left = self.left, None
        warnings.warn(
            f"the sequence has {counted(length, 'token')} and the model was trained on {trained} at once; "
            "expect worse predictions beyond that.",
            LengthWarning,
            stacklevel=2,
        )
