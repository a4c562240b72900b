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
from typing import Any

from gpt_onnx.checkpoint.archive_machine import MARK, MAX_NAME, Builder, Inert, Machine, Named, PickleFault

MAX_INSTRUCTIONS = 500_000  # some thirty a tensor; they take a second and 50 MB at most
MAX_INTEGER_BYTES = 8
STOP = b"."

Act = Callable[[Machine], None]


def _constant(make: Callable[[], Any]) -> Act:
    return lambda machine: machine.push(make())


def _number(layout: str) -> Act:
    unpack = struct.Struct(layout)
    return lambda machine: machine.push(unpack.unpack(machine.take(unpack.size))[0])


def _counted(layout: str, make: Callable[[bytes], Any]) -> Act:
    """Return what takes a length, then that many bytes, and makes a value of them."""
    unpack = struct.Struct(layout)

    def act(machine: Machine) -> None:
        (size,) = unpack.unpack(machine.take(unpack.size))
        machine.push(make(machine.take(size)))

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
    return data.decode("utf-8", "replace")


def _tuple_of(count: int) -> Act:
    def act(machine: Machine) -> None:
        values = tuple(machine.stack[-count:])
        if len(values) < count or any(value is MARK for value in values):
            raise ValueError("too few values")
        machine.stack[-count:] = [values]

    return act


def _collect(make: Callable[[list[Any]], Any]) -> Act:
    return lambda machine: machine.push(make(machine.marked()))


KEYS = (str, int, float, bytes, type(None), Inert, Named)


def _key(value: Any) -> Any:
    """Return what may be a key: hashes of tuples can be made to collide, or to take for ever."""
    return value if isinstance(value, KEYS) else Inert(type(value).__name__)


def _pairs(values: list[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise ValueError("a key without a value")
    return {_key(key): value for key, value in zip(values[::2], values[1::2], strict=True)}


def _extend(machine: Machine, values: list[Any]) -> None:
    target = _top(machine)
    if isinstance(target, list):
        target.extend(values)
    elif not isinstance(target, Inert):
        raise ValueError("only a list can be added to")


def _update(machine: Machine, values: list[Any]) -> None:
    target = _top(machine)
    if isinstance(target, dict):
        target.update(_pairs(values))
    elif not isinstance(target, Inert):
        raise ValueError("only a dict has keys")


def _append(machine: Machine) -> None:
    value = machine.pop()
    _extend(machine, [value])


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    _update(machine, [key, value])


def _get(layout: str) -> Act:
    unpack = struct.Struct(layout)
    return lambda machine: machine.push(machine.memo[unpack.unpack(machine.take(unpack.size))[0]])


def _top(machine: Machine) -> Any:
    value = machine.pop()
    machine.push(value)
    return value


def _put(layout: str) -> Act:
    unpack = struct.Struct(layout)

    def act(machine: Machine) -> None:
        (index,) = unpack.unpack(machine.take(unpack.size))
        machine.memo[index] = _top(machine)

    return act


def _memoize(machine: Machine) -> None:
    machine.memo[len(machine.memo)] = _top(machine)


def _global(machine: Machine) -> None:
    machine.push(_named(machine, machine.line(), machine.line()))


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    machine.push(_named(machine, module, name))


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
    args, function = machine.pop(), machine.pop()
    machine.push(_call(machine, function, args))


def _new_with_names(machine: Machine) -> None:
    machine.pop()  # arguments by name: what is in the table takes none
    _reduce(machine)


def _build(machine: Machine) -> None:
    """Keep an object's attributes: only an inert one has any; a dict's, such as _metadata, are left out."""
    state = machine.pop()
    if isinstance(target := _top(machine), Inert):
        target.state = state
    elif not isinstance(target, dict):
        raise ValueError("only an object has attributes")


def _persistent(machine: Machine) -> None:
    machine.push(machine.builder.persistent(machine.pop()))


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


def read_pickle(
    data: bytes, builder: Builder, start: int = 0, most: int = MAX_INSTRUCTIONS
) -> tuple[object, int]:
    """Carry out the instructions of one pickle, and return its value and where it ends.

    Args:
        data: Bytes that hold it.
        builder: What gives its calls their meaning.
        start: Its first byte.
        most: Instructions that are carried out.

    Raises:
        PickleFault: if an instruction is unknown or impossible, or there are too many.
    """
    machine = Machine(data, builder, start)
    for _ in range(most):
        code = machine.take(1)
        if code != STOP and code not in INSTRUCTIONS:
            raise PickleFault(f"has the instruction {code!r}, which PyTorch never writes")
        try:
            if code == STOP:
                return machine.pop(), machine.place
            INSTRUCTIONS[code](machine)
        except (IndexError, KeyError, ValueError, TypeError, struct.error) as exc:
            raise PickleFault(f"has an impossible instruction at byte {machine.place}") from exc
    raise PickleFault(f"has more than {most} instructions")
