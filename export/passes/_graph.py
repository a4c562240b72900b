"""What several passes ask of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

Dim = int | str


def dims_of(value: ir.Value | None) -> list[Dim] | None:
    """Return the dims as numbers and names; None where one is unknown."""
    if value is None or value.shape is None:
        return None
    dims: list[Dim] = []
    for dim in value.shape:
        known = dim if isinstance(dim, int) else dim.value
        if known is None:
            return None
        dims.append(known)
    return dims


def is_parameter(value: ir.Value | None) -> bool:
    """Whether a value is a parameter, whose weight is bound after the passes."""
    return value is not None and value.is_initializer() and value.const_value is None


def is_constant(value: ir.Value | None) -> bool:
    """Whether a value is known without running anything; a parameter is not."""
    return value is not None and ir.convenience.get_const_tensor(value) is not None


def transposed_parameter(node: ir.Node | None) -> ir.Value | None:
    """Return the parameter whose two axes a node swaps, None for any other node."""
    if node is None or node.op_type != "Transpose" or not is_parameter(node.inputs[0]):
        return None
    perm = node.attributes.get("perm")
    return node.inputs[0] if perm is None or list(perm.as_ints()) == [1, 0] else None


def producer(value: ir.Value | None) -> ir.Node | None:
    """Return the node that makes a value; None for inputs, initializers and absent inputs."""
    return None if value is None else value.producer()


def int64_initializer(graph: ir.Graph, name: str, values: Sequence[int]) -> ir.Value:
    """Return the graph's one-dimensional int64 initializer of that name, made if it is not there."""
    if name not in graph.initializers:
        tensor = ir.tensor(np.array(values, dtype=np.int64), name=name)
        kind = ir.TensorType(tensor.dtype)
        value = ir.Value(name=name, shape=ir.Shape([len(values)]), type=kind, const_value=tensor)
        graph.register_initializer(value)
    return graph.initializers[name]


def named_node(
    op_type: str, inputs: Sequence[ir.Value | None], name: str, attributes: dict[str, int] | None = None
) -> ir.Node:
    """Return a node of one output, which has the node's name."""
    node = ir.node(op_type, inputs, attributes, name=name)
    node.outputs[0].name = name
    return node


def hand_over(former: ir.Value, made: ir.Value) -> None:
    """Give a value the name, shape, type and users of another, which nothing uses then."""
    made.shape, made.type = former.shape, former.type
    former.name, made.name = f"{former.name}.traced", former.name
    ir.convenience.replace_all_uses_with(former, made, replace_graph_outputs=True)


@dataclass(frozen=True, slots=True)
class Head:
    """The product that makes the logits, and the bias that is added to it."""

    matmul: ir.Node
    bias: ir.Value | None


def find_head(model: ir.Model) -> Head | None:
    """Return the head if the logits are MatMul(hidden, weight) or that plus an initializer, else None."""
    node, bias = model.graph.outputs[0].producer(), None
    if node is not None and node.op_type == "Add":
        biases = [value for value in node.inputs if value is not None and value.is_initializer()]
        products = [made for made in map(producer, node.inputs) if made is not None]
        if len(biases) != 1 or len(products) != 1:
            return None
        node, bias = products[0], biases[0]
    return Head(node, bias) if node is not None and node.op_type == "MatMul" else None
