"""Weights of a graph that are to become integers: how they are found, and the parts they are stored as.

A weight W, (N, K) = (outputs, inputs), is used by products, ``MatMul(x, Transpose(W))``, and by lookups,
``Gather(W, input_ids)``. Anything else that is done with it keeps it in float32. The values of the parts are
bound after the passes, as those of all parameters (gpt_onnx.export.weights).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.parts import STORED

from ._graph import dims_of, find_head, is_parameter, transposed_parameter

PART = "gpt_onnx.part"
IDS = "input_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What an initializer holds of a quantised weight."""

    weight: str
    """The graph's name of the weight."""
    grid: Grid
    stored: str
    """A key of gpt_onnx.export.quantize.parts.STORED."""


@dataclass(slots=True)
class Uses:
    """What a graph does with a weight."""

    value: ir.Value
    products: list[ir.Node] = field(default_factory=list)
    """MatMul nodes."""
    lookups: list[ir.Node] = field(default_factory=list)
    """Gather nodes."""
    is_table: bool = False
    """Whether it makes the logits, or the embedding of the ids."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        rows, columns = (int(dim) for dim in dims_of(self.value) or ())
        return rows, columns


def _product_of(transpose: ir.Node) -> list[ir.Node]:
    """Return the products that take a transposed weight; nothing where anything else does too."""
    users = [(use.node, use.idx) for use in transpose.outputs[0].uses()]
    fits = all(node.op_type == "MatMul" and index == 1 for node, index in users)
    return [node for node, _ in users] if fits else []


def _is_lookup(node: ir.Node, index: int) -> bool:
    ids, axis = node.inputs[1] if len(node.inputs) > 1 else None, node.attributes.get("axis")
    along_rows = axis is None or axis.as_int() == 0
    return node.op_type == "Gather" and index == 0 and along_rows and ids is not None and ids.name == IDS


def _uses_of(value: ir.Value) -> Uses | None:
    """Return the uses of a weight if all of them are products and lookups, else None."""
    found = Uses(value)
    for use in value.uses():
        products = _product_of(use.node) if transposed_parameter(use.node) is value else []
        found.products += products
        if _is_lookup(use.node, use.idx):
            found.lookups.append(use.node)
        elif not products:
            return None
    return found if found.products or found.lookups else None


def quantizable(model: ir.Model) -> Iterator[Uses]:
    """Yield the weights that can be integers, each with what is done with it."""
    head = find_head(model)
    for value in list(model.graph.initializers.values()):
        if not is_parameter(value) or len(dims_of(value) or ()) != 2:
            continue
        found = _uses_of(value)
        if found is not None:
            found.is_table = bool(found.lookups) or (head is not None and head.matmul in found.products)
            yield found


SUFFIXES: Mapping[str, str] = {"rows": "packed"}
"""How a part is called where not as what is stored."""


def part_value(graph: ir.Graph, uses: Uses, grid: Grid, stored: str) -> ir.Value:
    """Return the initializer for a part of a weight, made if it is not there."""
    weight = uses.value.name or ""
    name = f"{weight}.{SUFFIXES.get(stored, stored)}"
    if name not in graph.initializers:
        part = STORED[stored]
        dims, dtype = part.dims(uses.shape, grid), part.dtype(grid)
        value = ir.Value(name=name, shape=ir.Shape(dims), type=ir.TensorType(dtype))
        value.meta[PART] = Part(weight=weight, grid=grid, stored=stored)
        graph.initializers[name] = value
    return graph.initializers[name]
