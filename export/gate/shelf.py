"""Large arrays that wait in a file: keys and values of long sequences are gigabytes in float64.

shelf = Shelf()
keys = shelf.put(array)        # the array itself where it is small
keys[:7]                       # the first rows, read when they are asked for
"""

from __future__ import annotations

import tempfile
import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .tolerance import FloatArray

LARGE = 2**22
"""Bytes from which on an array waits in the file: a layer's keys of 512 tokens, 1,024 wide."""
FLOAT = np.dtype(np.float64)


class Rows(Protocol):
    """A float64 array of which some first rows are asked for."""

    def __getitem__(self, rows: slice, /) -> FloatArray:
        """Return rows."""
        ...


class Shelf:
    """A file without a name, which is gone with the last array in it."""

    def __init__(self) -> None:
        self._file: Any = None
        self._end = 0

    def put(self, array: FloatArray) -> Rows:
        """Put an array away; it stays in memory where it is small, or the disk is full."""
        if array.nbytes < LARGE:
            return array
        try:
            return self._written(np.ascontiguousarray(array))
        except OSError:
            return array

    def _written(self, array: FloatArray) -> Shelved:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="gpt-onnx-", buffering=0)  # noqa: SIM115  # see below
            weakref.finalize(self, self._file.close)
        self._file.seek(self._end)
        left = array.data.cast("B")
        while left:  # a disk that is nearly full takes a part, and refuses the next
            left = left[self._file.write(left) :]
        start, self._end = self._end, self._end + array.nbytes
        return Shelved(shelf=self, start=start, shape=array.shape)

    def read(self, start: int, shape: tuple[int, ...]) -> FloatArray:
        """Return an array that begins at some byte."""
        self._file.seek(start)
        return np.fromfile(self._file, FLOAT, int(np.prod(shape))).reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelved:
    """An array on a shelf; see Rows."""

    shelf: Shelf
    start: int
    """Bytes before it."""
    shape: tuple[int, ...]

    def __getitem__(self, rows: slice, /) -> FloatArray:
        """Read rows; they begin with the first."""
        begin, count, step = rows.indices(self.shape[0])
        assert begin == 0
        assert step == 1
        return self.shelf.read(self.start, (count, *self.shape[1:]))
