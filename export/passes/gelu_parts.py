"""Gelu(x) -> the operators it is made of, as before opset 20.

    exact    0.5 (x (1 + erf(x / sqrt 2)))
    tanh     (0.5 x) (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

In the order in which ONNX Runtime knows both and makes one operator of each when it loads the graph.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from ._graph import hand_over, named_node


class _Builder:
    """Appends nodes before one node, each with the dims and the type of its input."""

    def __init__(self, graph: ir.Graph, gelu: ir.Node) -> None:
        x = gelu.inputs[0]
        assert x is not None
        self._graph, self._gelu, self.x = graph, gelu, x

    def constant(self, name: str, value: float) -> ir.Value:
        """Return a scalar of the input's type, made if it is not there."""
        kind = (self.x.type.dtype if self.x.type else None) or ir.DataType.FLOAT
        named = f"gelu.{name}.{kind.name.lower()}"
        if named not in self._graph.initializers:
            tensor = ir.tensor(np.array(value, dtype=kind.numpy()), name=named)
            made = ir.Value(name=named, shape=ir.Shape([]), type=ir.TensorType(kind), const_value=tensor)
            self._graph.register_initializer(made)
        return self._graph.initializers[named]

    def add(self, op_type: str, name: str, *inputs: ir.Value) -> ir.Value:
        """Return what a new node makes."""
        node = named_node(op_type, inputs, f"{self._gelu.outputs[0].name}.{name}")
        node.outputs[0].shape, node.outputs[0].type = self.x.shape, self.x.type
        self._graph.insert_before(self._gelu, node)
        return node.outputs[0]


def _exact(build: _Builder) -> ir.Value:
    x = build.x
    scaled = build.add("Div", "scaled", x, build.constant("root_of_2", math.sqrt(2)))
    share = build.add("Add", "share", build.add("Erf", "erf", scaled), build.constant("one", 1))
    return build.add("Mul", "whole", build.add("Mul", "product", x, share), build.constant("half", 0.5))


def _tanh(build: _Builder) -> ir.Value:
    x = build.x
    cube = build.add("Pow", "cube", x, build.constant("three", 3))
    inner = build.add("Add", "inner", x, build.add("Mul", "bent", cube, build.constant("bend", 0.044715)))
    scaled = build.add("Mul", "scaled", inner, build.constant("root_of_2_by_pi", math.sqrt(2 / math.pi)))
    share = build.add("Add", "share", build.add("Tanh", "tanh", scaled), build.constant("one", 1))
    return build.add("Mul", "whole", build.add("Mul", "half_of_x", x, build.constant("half", 0.5)), share)


FORMS = {"none": _exact, "tanh": _tanh}
"""By the attribute ``approximate``."""


def gelu_parts(model: ir.Model) -> int:
    """Return the number of activations that are in parts now."""
    gelus = [node for node in model.graph if node.op_type == "Gelu" and not node.domain]
    for node in gelus:
        form = node.attributes.get("approximate")
        made = FORMS["none" if form is None else form.as_string()](_Builder(model.graph, node))
        hand_over(node.outputs[0], made)
        model.graph.remove(node, safe=True)
    return len(gelus)
