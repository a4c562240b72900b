"""What a pickle is read with: its bytes, a stack, a memo, and values that can do nothing.

See gpt_onnx.checkpoint.archive_pickle for the instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

MAX_NAME = 500  # characters of a class's name
MARK = object()


class PickleFault(Exception):  # noqa: N818 - it is about the file, and becomes a CheckpointError
    """A pickle that is damaged, too large, or says what no checkpoint says; one part of a sentence."""


@dataclass(frozen=True, slots=True)
class Named:
    """A class or a function that a pickle names; it is never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Inert:
    """An object of a class outside of the table: never made, it holds what the file says of it."""

    of: str
    """The class, or what was called."""
    state: Any = None
    """What its attributes would have been set to; a dict for the modules of TorchScript."""

    def __repr__(self) -> str:  # what it holds may be nested without end
        return f"<{self.of[:200]}>"


class Builder(Protocol):
    """What gives the calls of a pickle their meaning."""

    def name(self, named: Named) -> object:
        """Return the value of a name alone; raises PickleFault to refuse it."""
        ...

    def call(self, named: Named, args: tuple[Any, ...]) -> object:
        """Return the value of a call; raises PickleFault to refuse it."""
        ...

    def persistent(self, identity: object) -> object:
        """Return what stands outside of the pickle, a storage; raises PickleFault to refuse it."""
        ...


@dataclass(slots=True)
class Machine:
    """The state of reading one pickle."""

    data: bytes
    builder: Builder
    place: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def take(self, size: int) -> bytes:
        """Take bytes of the pickle."""
        if not 0 <= size <= len(self.data) - self.place:
            raise PickleFault("ends within an instruction")
        self.place += size
        return self.data[self.place - size : self.place]

    def line(self) -> str:
        """Take text up to the end of a line."""
        end = self.data.find(b"\n", self.place, self.place + MAX_NAME)
        if end < 0:
            raise PickleFault("has a name without an end")
        text = self.take(end - self.place).decode()
        self.place += 1
        return text

    def push(self, value: object) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> Any:
        """Take the value on top.

        Raises:
            ValueError: if it is a mark.
        """
        if (value := self.stack.pop()) is MARK:
            raise ValueError("a mark is no value")
        return value

    def marked(self) -> list[Any]:
        """Take the values above the last mark."""
        values: list[Any] = []
        while (value := self.stack.pop()) is not MARK:
            values.append(value)
        values.reverse()
        return values
