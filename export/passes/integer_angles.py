"""Angles of positions in float64 -> the same angles in 42-bit fractions of a turn, in int64.

    angle = p * frequency + phase, less whole turns                     (float64, cast to float32)
    total = p * G + P;  angle = (total - total / 2^42 * 2^42 - 2^41) * 2 pi / 2^42      (int64, then float32)

G and P are frequency / (2 pi) and phase / (2 pi) + 1/2 as whole numbers of 2^-42 turns, so that angles come
out in [-pi, pi). They are off by p * 2^-43 turns at most, 7e-7 rad at position 2^20, and nothing overflows
before 2^21. For targets whose runtimes have no float64: WebGPU, and the WebAssembly that comes with it.
Declined where angles are rounded to float32 before whole turns are taken off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ._graph import hand_over, named_node, producer

TURN_BITS = 42
TURN, HALF = 1 << TURN_BITS, 1 << (TURN_BITS - 1)
FLOAT32, FLOAT64 = int(ir.DataType.FLOAT), int(ir.DataType.DOUBLE)
NONE = (None, None)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Angles:
    """The parts of an expression that makes angles in float64."""

    cast: ir.Node
    """Its end: Cast to float32."""
    positions: ir.Value
    frequencies: Floats
    phases: Floats


def _operands(value: ir.Value | None, op_type: str) -> tuple[ir.Value | None, ...]:
    """Return the inputs of the node of that type which makes a value; nothing for any other."""
    node = producer(value)
    return tuple(node.inputs) if node is not None and node.op_type == op_type else ()


def _casts(node: ir.Node | None, to: int) -> bool:
    attribute = None if node is None or node.op_type != "Cast" else node.attributes.get("to")
    return attribute is not None and attribute.as_int() == to


def _constant(value: ir.Value | None) -> Floats | None:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else np.asarray(tensor.numpy(), np.float64)


def _without_turns(value: ir.Value | None) -> ir.Value | None:
    """Return x where a value is x - Floor(x / turn) * turn."""
    whole, turns = _operands(value, "Sub") or NONE
    floor, turn = _operands(turns, "Mul") or NONE
    (quotient,) = _operands(floor, "Floor") or (None,)
    divided = _operands(quotient, "Div")
    return whole if divided == (whole, turn) else None


def _angles_before(cast: ir.Node) -> _Angles | None:
    """Return the angles that a node casts to float32, None for any other node."""
    if not _casts(cast, FLOAT32):
        return None
    product, phase = _operands(_without_turns(cast.inputs[0]), "Add") or NONE
    wide, frequency = _operands(product, "Mul") or NONE
    widen, frequencies, phases = producer(wide), _constant(frequency), _constant(phase)
    if widen is None or not _casts(widen, FLOAT64) or frequencies is None or phases is None:
        return None
    positions = widen.inputs[0]
    if positions is None or positions.dtype != ir.DataType.INT64:
        return None
    return _Angles(cast, positions, frequencies, phases)


def _initializer(graph: ir.Graph, name: str, array: NDArray[Any]) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    kind = ir.TensorType(tensor.dtype)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=kind, const_value=tensor)
    graph.register_initializer(value)
    return value


def _turns(radians: Floats) -> NDArray[np.int64]:
    """Return fractions of a turn as whole numbers of 2^-42 turns."""
    fraction: Floats = radians / (2 * np.pi) % 1
    return np.rint(fraction * TURN).astype(np.int64)


def _rewrite(graph: ir.Graph, angles: _Angles, number: int) -> None:
    end, name = angles.cast, f"angles_{number}"

    def add(op_type: str, inputs: list[ir.Value | None], part: str, to: int | None = None) -> ir.Value:
        node = named_node(op_type, inputs, f"{name}.{part}", None if to is None else {"to": to})
        graph.insert_before(end, node)
        return node.outputs[0]

    turn = _initializer(graph, f"{name}.turn", np.array(TURN, np.int64))
    half = _initializer(graph, f"{name}.half", np.array(HALF, np.int64))
    steps = _initializer(graph, f"{name}.steps", _turns(angles.frequencies))
    starts = _initializer(graph, f"{name}.starts", _turns(angles.phases) + HALF)
    radians = _initializer(graph, f"{name}.radians", np.array(2 * np.pi / TURN, np.float32))
    total = add("Add", [add("Mul", [angles.positions, steps], "stepped"), starts], "total")
    whole = add("Mul", [add("Div", [total, turn], "turns"), turn], "whole")
    centred = add("Sub", [add("Sub", [total, whole], "fraction"), half], "centred")
    hand_over(end.outputs[0], add("Mul", [add("Cast", [centred], "float", FLOAT32), radians], "radians"))


def integer_angles(model: ir.Model) -> int:
    """Return the number of expressions that were rewritten."""
    found = [angles for angles in map(_angles_before, model.graph) if angles is not None]
    for number, angles in enumerate(found):
        _rewrite(model.graph, angles, number)
    return len(found)
