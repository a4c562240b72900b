"""LayerNormalization(a + b [+ bias]) -> SkipLayerNormalization(a, b, ..., bias), for the residual stream.

    sum = a + b + bias                  # kept as the fourth output where the stream goes on with it
    y = LayerNorm(sum)

ONNX Runtime fuses the two by itself only where nothing else reads the sum, and in a transformer the residual
stream always does. RMSNorm, ``x / sqrt(mean(x^2) + eps) * weight``, becomes SkipSimplifiedLayerNormalization
in the same way. Declined where the shapes of a and b differ, or the norm is not over the last dim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import common

from gpt_onnx.export.targets import MICROSOFT

from ._graph import dims_of, hand_over, producer

LAST = -1
DEFAULT_EPSILON = 1e-5  # of LayerNormalization, in the operator's document


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A norm in the graph."""

    op_type: str
    """What takes its place."""
    last: ir.Node
    """The node that makes its output."""
    x: ir.Value
    """What it normalises."""
    operands: tuple[ir.Value, ...]
    """Its weight and, perhaps, its bias."""
    epsilon: float


def _only_input(node: ir.Node | None, op_type: str, index: int = 0) -> ir.Value | None:
    """Return an input of a node of that kind, None for any other node."""
    return node.inputs[index] if node is not None and node.op_type == op_type else None


def _layer_norm(node: ir.Node) -> Norm | None:
    x = _only_input(node, "LayerNormalization")
    axis = node.attributes.get("axis")
    if x is None or len(node.outputs) > 1:
        return None
    if axis is not None and axis.as_int() not in (LAST, len(x.shape or ()) - 1):
        return None
    epsilon = node.attributes.get("epsilon")
    operands = tuple(value for value in node.inputs[1:] if value is not None)
    value = DEFAULT_EPSILON if epsilon is None else epsilon.as_float()
    return Norm(op_type="SkipLayerNormalization", last=node, x=x, operands=operands, epsilon=value)


def _number(value: ir.Value | None) -> float | None:
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.size != 1 else float(tensor.numpy().reshape(()))


def _rms_norm(node: ir.Node) -> Norm | None:
    """Match Mul(Div(x, Sqrt(ReduceMean(Pow(x, 2)) + eps)), weight), as gpt_onnx.model.norms is traced."""
    quotient, weight = (node.inputs[0], node.inputs[1]) if node.op_type == "Mul" else (None, None)
    division = producer(quotient)
    x = _only_input(division, "Div")
    total = _only_input(producer(_only_input(division, "Div", 1)), "Sqrt")
    mean, epsilon = _only_input(producer(total), "Add"), _number(_only_input(producer(total), "Add", 1))
    power = producer(_only_input(producer(mean), "ReduceMean"))
    squared = _only_input(power, "Pow")
    two = _number(_only_input(power, "Pow", 1))
    if x is None or squared is not x or two != 2.0 or epsilon is None or weight is None:
        return None
    if len(dims_of(weight) or ()) != 1 or not weight.is_initializer():
        return None
    return Norm(
        op_type="SkipSimplifiedLayerNormalization", last=node, x=x, operands=(weight,), epsilon=epsilon
    )


MATCHERS: tuple[Callable[[ir.Node], Norm | None], ...] = (_layer_norm, _rms_norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """What makes a norm's input."""

    left: ir.Value
    right: ir.Value
    bias: ir.Value | None


def _sum_of(x: ir.Value) -> _Sum | None:
    """Return the parts of ``left + right`` or ``left + (right + bias)``; None where shapes differ."""
    node = producer(x)
    if node is None or node.op_type != "Add" or x.is_graph_output():
        return None
    left, right = node.inputs
    if left is None or right is None or left.is_initializer() or right.is_initializer():
        return None
    if dims_of(left) is None or dims_of(left) != dims_of(right):
        return None
    return _with_bias(left, right) or _with_bias(right, left) or _Sum(left=left, right=right, bias=None)


def _with_bias(stream: ir.Value, branch: ir.Value) -> _Sum | None:
    """Take a bias out of a branch that nothing else reads."""
    node = producer(branch)
    if node is None or node.op_type != "Add" or len(branch.uses()) != 1:
        return None
    biases = [value for value in node.inputs if value is not None and value.is_initializer()]
    rest = [value for value in node.inputs if value is not None and not value.is_initializer()]
    if len(biases) != 1 or dims_of(biases[0]) != (dims_of(branch) or [])[-1:]:
        return None
    return _Sum(left=stream, right=rest[0], bias=biases[0])


def _fuse(graph: ir.Graph, norm: Norm, parts: _Sum) -> ir.Node:
    """Put the fused node in the place of sum and norm, and return it."""
    operands: list[ir.Value | None] = [parts.left, parts.right, *norm.operands]
    if parts.bias is not None:
        full = 4 if norm.op_type == "SkipLayerNormalization" else 3
        operands += [None] * (full - len(operands)) + [parts.bias]
    name = norm.last.outputs[0].name
    node = ir.node(
        norm.op_type,
        operands,
        {"epsilon": norm.epsilon},
        domain=MICROSOFT,
        num_outputs=4,
        name=f"{name}.skip",
    )
    old, stream = norm.last.outputs[0], norm.x
    graph.insert_before(producer(norm.x) or norm.last, node)
    for made, former in ((node.outputs[0], old), (node.outputs[3], stream)):
        hand_over(former, made)
    for unused in node.outputs[1:3]:
        unused.name = ""
    return node


def skip_layer_norm(model: ir.Model) -> int:
    """Return the number of norms that are one node with the sum before them."""
    made = []
    for node in list(model.graph):
        norm = next((found for match in MATCHERS if (found := match(node))), None)
        parts = _sum_of(norm.x) if norm is not None else None
        if norm is not None and parts is not None:
            made.append(_fuse(model.graph, norm, parts))
    common.RemoveUnusedNodesPass()(model)
    for node in made:
        if not node.outputs[3].uses():
            node.outputs[3].name = ""
    return len(made)
