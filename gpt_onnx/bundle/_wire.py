"""Protocol Buffers on the wire: the fields of one message, without its schema and without recursion.

    >>> [(field.number, field.value) for field in Reader().fields(memoryview(bytes([0x08, 0x96, 0x01])))]
    [(1, 150)]

Only what proto3 writes is read: varints, fixed 32 and 64 bits, and bytes. Groups, truncated values, varints
over 64 bits and field numbers of zero are refused. A reader gives up after MAX_FIELDS fields, so that the
time it takes is bounded whatever a file holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpt_onnx.bundle._names import shorten
from gpt_onnx.errors import BundleError

MAX_FIELDS = 600_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZE = {_FIXED64: 8, _FIXED32: 4}


class Field(NamedTuple):
    """One field of a message: an int for varints and fixed widths, a view for bytes."""

    number: int
    value: int | memoryview

    def integer(self) -> int:
        """Return the value as a signed 64-bit integer.

        Raises:
            BundleError: if the field holds bytes.
        """
        if isinstance(self.value, memoryview):
            raise BundleError(f"field {self.number} holds bytes; it must hold an integer.")
        return self.value - (1 << 64) if self.value >> 63 else self.value

    def content(self) -> memoryview:
        """Return the bytes of the value.

        Raises:
            BundleError: if the field holds an integer.
        """
        if isinstance(self.value, int):
            raise BundleError(f"field {self.number} holds an integer; it must hold bytes.")
        return self.value

    def text(self) -> str:
        """Return the value as a string.

        Raises:
            BundleError: if it is not UTF-8.
        """
        try:
            return str(self.content(), "utf-8")
        except UnicodeDecodeError as exc:
            raise BundleError(
                f"field {self.number} is not UTF-8: {shorten(bytes(exc.object[:40]))}."
            ) from exc


def read_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return the unsigned integer at ``position`` and the position after it.

    Raises:
        BundleError: if it ends early or has more than 64 bits.
    """
    value = shift = 0
    while position < len(view) and shift < 70:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
        shift += 7
    raise BundleError(f"the integer that ends at byte {position} is cut off or has more than 64 bits.")


class Reader:
    """Reads messages and counts their fields."""

    def __init__(self, max_fields: int = MAX_FIELDS) -> None:
        self._left = max_fields
        self._limit = max_fields

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise BundleError(f"it has more than {self._limit} fields; a graph of a GPT has far fewer.")

    def fields(self, view: memoryview) -> Iterator[Field]:
        """Yield the fields of a message in their order.

        Raises:
            BundleError: if the bytes are not a message.
        """
        position = 0
        while position < len(view):
            self._count()
            key, position = read_varint(view, position)
            number, kind = key >> 3, key & 7
            if number == 0 or key >> 32:
                raise BundleError(f"a field has the number {number}; it must be in 1 .. 2^29 - 1.")
            value: int | memoryview
            if kind == _VARINT:
                value, position = read_varint(view, position)
            elif kind == _BYTES:
                size, start = read_varint(view, position)
                value, position = view[start : start + size], start + size
            elif kind in _FIXED_SIZE:
                size = _FIXED_SIZE[kind]
                value, position = int.from_bytes(view[position : position + size], "little"), position + size
            else:
                raise BundleError(f"field {number} has the wire type {kind}; 0, 1, 2 and 5 are read.")
            if position > len(view):
                raise BundleError(f"field {number} is cut off: it ends at byte {position} of {len(view)}.")
            yield Field(number, value)

    def integers(self, field: Field) -> Iterator[int]:
        """Yield the signed integers of a repeated field, packed or not.

        Raises:
            BundleError: if the packed bytes are not integers.
        """
        if isinstance(field.value, int):
            yield field.integer()
            return
        position = 0
        while position < len(field.value):
            self._count()
            value, position = read_varint(field.value, position)
            yield Field(field.number, value).integer()
