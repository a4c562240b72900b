"""A reader of pickles that makes plain values and does nothing else.

A pickle is a program: it names classes and functions, and Python's own unpickler imports and calls them. Here
its instructions are carried out by a machine that knows only those below. It has no way to import a module,
to call anything or to set an attribute: a name of a class stays a name (``Named``), and a call of a name is
handed to a table (``Builder``) that knows the few calls that make tensors. What the table does not know
becomes an ``Inert`` value, which holds what the file says and can do nothing.

That is why foreign values in a checkpoint (the state of an optimizer, a NumPy scalar, a configuration class)
do not prevent reading its weights, and why none of them can run.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

MAX_INSTRUCTIONS = 2_000_000
MAX_NAME = 500  # characters of a class's name
MAX_INTEGER_BYTES = 8
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

    def marked(self) -> list[Any]:
        """Take the values above the last mark."""
        values: list[Any] = []
        while (value := self.stack.pop()) is not MARK:
            values.append(value)
        values.reverse()
        return values

    def run(self) -> object:
        """Carry out instructions up to the end of the pickle, and return its value.

        Raises:
            PickleFault: if an instruction is unknown or impossible, or there are too many.
        """
        for _ in range(MAX_INSTRUCTIONS):
            code = self.take(1)
            if code == b".":
                return _value(self.stack.pop())
            act = INSTRUCTIONS.get(code)
            if act is None:
                raise PickleFault(f"has the instruction {code!r}, which PyTorch never writes")
            try:
                act(self)
            except (IndexError, KeyError, ValueError, TypeError, struct.error) as exc:
                raise PickleFault(f"has an impossible instruction at byte {self.place}") from exc
        raise PickleFault(f"has more than {MAX_INSTRUCTIONS} instructions")


Act = Callable[[Machine], None]


def _value(value: Any) -> Any:
    if value is MARK:
        raise ValueError("a mark is no value")
    return value


def _constant(make: Callable[[], Any]) -> Act:
    return lambda machine: machine.stack.append(make())


def _number(layout: str) -> Act:
    unpack = struct.Struct(layout)
    return lambda machine: machine.stack.append(unpack.unpack(machine.take(unpack.size))[0])


def _counted(layout: str, make: Callable[[bytes], Any]) -> Act:
    """Return what takes a length, then that many bytes, and makes a value of them."""
    unpack = struct.Struct(layout)

    def act(machine: Machine) -> None:
        (size,) = unpack.unpack(machine.take(unpack.size))
        machine.stack.append(make(machine.take(size)))

    return act


def _skip(size: int) -> Act:
    def act(machine: Machine) -> None:
        machine.take(size)

    return act


def _drop(machine: Machine) -> None:
    machine.stack.pop()


def _drop_marked(machine: Machine) -> None:
    machine.marked()


def _integer(data: bytes) -> object:
    """Return a number of up to 64 bits; no size is larger, and text of a huge one would take for ever."""
    value = int.from_bytes(data[: MAX_INTEGER_BYTES + 1], "little", signed=True)
    small = len(data) <= MAX_INTEGER_BYTES + 1 and value.bit_length() <= 8 * MAX_INTEGER_BYTES
    return value if small else Inert("int")


def _old_text(data: bytes) -> str:
    return data.decode("latin-1")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _tuple_of(count: int) -> Act:
    def act(machine: Machine) -> None:
        values = tuple(_value(machine.stack.pop()) for _ in range(count))
        machine.stack.append(values[::-1])

    return act


def _collect(make: Callable[[list[Any]], Any]) -> Act:
    return lambda machine: machine.stack.append(make(machine.marked()))


KEYS = (str, int, float, bytes, type(None), Inert, Named)


def _key(value: Any) -> Any:
    """Return what may be a key: hashes of tuples can be made to collide, or to take for ever."""
    return value if isinstance(value, KEYS) else Inert(type(value).__name__)


def _pairs(values: list[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise ValueError("a key without a value")
    return {_key(key): value for key, value in zip(values[::2], values[1::2], strict=True)}


def _extend(machine: Machine, values: list[Any]) -> None:
    target = machine.stack[-1]
    if isinstance(target, list):
        target.extend(values)
    elif not isinstance(target, Inert):
        raise ValueError("only a list can be added to")


def _update(machine: Machine, values: list[Any]) -> None:
    target = machine.stack[-1]
    if isinstance(target, dict):
        target.update(_pairs(values))
    elif not isinstance(target, Inert):
        raise ValueError("only a dict has keys")


def _append(machine: Machine) -> None:
    value = _value(machine.stack.pop())
    _extend(machine, [value])


def _set_item(machine: Machine) -> None:
    value, key = _value(machine.stack.pop()), _value(machine.stack.pop())
    _update(machine, [key, value])


def _get(layout: str) -> Act:
    unpack = struct.Struct(layout)
    return lambda machine: machine.stack.append(machine.memo[unpack.unpack(machine.take(unpack.size))[0]])


def _put(layout: str) -> Act:
    unpack = struct.Struct(layout)

    def act(machine: Machine) -> None:
        (index,) = unpack.unpack(machine.take(unpack.size))
        machine.memo[index] = _value(machine.stack[-1])

    return act


def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = _value(machine.stack[-1])


def _global(machine: Machine) -> None:
    machine.stack.append(_named(machine, machine.line(), machine.line()))


def _stack_global(machine: Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(_named(machine, module, name))


def _named(machine: Machine, module: Any, name: Any) -> object:
    if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > MAX_NAME:
        raise ValueError("a class is named by two short texts")
    return machine.builder.name(Named(module, name))


def _call(machine: Machine, function: object, args: object) -> object:
    """Hand a call of a name to the builder; a call of anything else makes an inert value."""
    if not isinstance(args, tuple):
        raise ValueError("arguments are a tuple")
    if isinstance(function, Named):
        return machine.builder.call(function, args)
    if isinstance(function, Inert):
        return Inert(function.of)
    raise ValueError("only a class or a function can be called")


def _reduce(machine: Machine) -> None:
    args, function = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(_call(machine, function, args))


def _new_with_names(machine: Machine) -> None:
    machine.stack.pop()  # arguments by name: what is in the table takes none
    _reduce(machine)


def _build(machine: Machine) -> None:
    """Keep an object's attributes: only an inert one has any; a dict's, such as _metadata, are left out."""
    state = _value(machine.stack.pop())
    if isinstance(target := machine.stack[-1], Inert):
        target.state = state
    elif not isinstance(target, dict):
        raise ValueError("only an object has attributes")


def _persistent(machine: Machine) -> None:
    machine.stack.append(machine.builder.persistent(_value(machine.stack.pop())))


INSTRUCTIONS: Mapping[bytes, Act] = {
    b"\x80": _skip(1),  # the protocol
    b"\x95": _skip(8),  # a frame's length
    b"(": _constant(lambda: MARK),
    b"0": _drop,
    b"1": _drop_marked,
    b"N": _constant(lambda: None),
    b"\x88": _constant(lambda: True),
    b"\x89": _constant(lambda: False),
    b"J": _number("<i"),
    b"K": _number("<B"),
    b"M": _number("<H"),
    b"G": _number(">d"),
    b"\x8a": _counted("<B", _integer),
    b"\x8b": _counted("<i", _integer),
    b"X": _counted("<I", _text),
    b"\x8c": _counted("<B", _text),
    b"\x8d": _counted("<Q", _text),
    b"T": _counted("<I", _old_text),
    b"U": _counted("<B", _old_text),
    b"B": _counted("<I", bytes),
    b"C": _counted("<B", bytes),
    b"\x8e": _counted("<Q", bytes),
    b"\x96": _counted("<Q", bytes),
    b"]": _constant(list),
    b"}": _constant(dict),
    b")": _constant(tuple),
    b"\x8f": _constant(list),  # a set: nothing that makes weights is one
    b"t": _collect(tuple),
    b"l": _collect(list),
    b"d": _collect(_pairs),
    b"\x91": _collect(tuple),  # a frozen set
    b"\x85": _tuple_of(1),
    b"\x86": _tuple_of(2),
    b"\x87": _tuple_of(3),
    b"a": _append,
    b"e": lambda machine: _extend(machine, machine.marked()),
    b"\x90": lambda machine: _extend(machine, machine.marked()),
    b"s": _set_item,
    b"u": lambda machine: _update(machine, machine.marked()),
    b"h": _get("<B"),
    b"j": _get("<I"),
    b"q": _put("<B"),
    b"r": _put("<I"),
    b"\x94": _memoize,
    b"c": _global,
    b"\x93": _stack_global,
    b"R": _reduce,
    b"\x81": _reduce,  # NEWOBJ: a class and its arguments
    b"\x92": _new_with_names,
    b"b": _build,
    b"Q": _persistent,
}
