"""Every product becomes float16, with its weights and the cache; everything between stays float32.

    MatMul(x, W) -> Cast(MatMul(Cast(x, float16), W as float16), float32)

Products are MatMul, Gemm (whose bias is added afterwards, in float32) and GroupQueryAttention. Norms,
softmax, activations, positions, sums of the residual stream and the logits are float32, as they overflow or
lose most.
Matrices are stored as float16, also those that are looked up; norms and biases are float32.

A Cast is moved over what only moves numbers (MOVES), which it commutes with bit for bit, until it meets
another that undoes it, or what computes: rows are looked up before they are widened, and a cache is never
widened whole. A mask's value is finite in float16 too, for runtimes that compute everything in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from gpt_onnx.export.targets import MICROSOFT

from ._graph import dims_of, hand_over, is_parameter, named_node

HALF, SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
PRODUCTS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "MatMul"): (0, 1),
    ("", "Gemm"): (0, 1),
    (MICROSOFT, "GroupQueryAttention"): (0, 1, 2, 3, 4),
}
"""Domain and type of a product to the places of its factors."""
MOVES: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(
        ("Expand", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
        (0,),
    ),
    "Concat": None,
    "Where": (1, 2),
}
"""Operators that move numbers and change none, and the places of what they move; None: all places."""
CACHES = ("past_key_values.", "present.")
LOWEST = np.finfo(np.float16).min


def _moved(node: ir.Node) -> list[int]:
    """Return the places of what a node only moves; none where it computes."""
    if node.domain or node.op_type not in MOVES:
        return []
    places = MOVES[node.op_type]
    return list(range(len(node.inputs))) if places is None else list(places)


def _is(value: ir.Value | None, kind: ir.DataType) -> bool:
    return value is not None and (value.dtype or SINGLE) == kind


def _cast_from(value: ir.Value | None, kind: ir.DataType) -> ir.Value | None:
    """Return what a value was cast from, if it was and that is of the kind; else None."""
    node = None if value is None else value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    return source if _is(source, kind) else None


class _Halves:
    """One graph, and the casts that are in it."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self._made: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def cast(self, value: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return a value in a kind; undoing a cast costs nothing."""
        source = _cast_from(value, kind)
        if source is not None and kind == HALF:
            return source
        if (value, kind) not in self._made:
            node = named_node("Cast", [value], f"{value.name}.{kind.name.lower()}", {"to": int(kind)})
            made = node.outputs[0]
            made.shape, made.type = value.shape, ir.TensorType(kind)
            self.graph.append(node)
            self._made[value, kind] = made
        return self._made[value, kind]

    def store(self, value: ir.Value) -> None:
        """Let a value be float16, and what computes with it see it widened."""
        uses = list(value.uses())
        value.type = ir.TensorType(HALF)
        if value.is_graph_output() and not (value.name or "").startswith(CACHES):
            made = ir.node("Cast", [value], {"to": int(SINGLE)}, name=f"{value.name}.single")
            hand_over(value, made.outputs[0])
            made.outputs[0].type = ir.TensorType(SINGLE)
            value.type = ir.TensorType(HALF)
            made.replace_input_with(0, value)
            self.graph.append(made)
            return
        for use in uses:
            use.node.replace_input_with(use.idx, self.cast(value, SINGLE))

    def narrow(self, node: ir.Node, places: list[int]) -> None:
        """Feed a node float16."""
        for place in places:
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is not None and _is(value, SINGLE):
                node.replace_input_with(place, self.cast(value, HALF))


def _add_apart(graph: ir.Graph, gemm: ir.Node) -> None:
    """Gemm(x, W, bias) -> Add(Gemm(x, W), bias)."""
    bias = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    if bias is None:
        return
    gemm.resize_inputs(2)
    added = named_node("Add", [gemm.outputs[0], bias], f"{gemm.outputs[0].name}.biased")
    hand_over(gemm.outputs[0], added.outputs[0])
    added.replace_input_with(0, gemm.outputs[0])
    gemm.outputs[0].shape, gemm.outputs[0].type = added.outputs[0].shape, added.outputs[0].type
    graph.insert_after(gemm, added)


def _products(graph: ir.Graph) -> Iterator[tuple[ir.Node, list[int]]]:
    for node in list(graph):
        places = PRODUCTS.get((node.domain, node.op_type))
        factors = [node.inputs[place] for place in places or () if place < len(node.inputs)]
        if places and all(factor is None or _is(factor, SINGLE) for factor in factors):
            yield node, list(places)


def _halve_outputs(halves: _Halves) -> None:
    """Let the graph return its cache in float16."""
    graph = halves.graph
    for value in list(graph.outputs):
        if (value.name or "").startswith(CACHES) and _is(value, SINGLE):
            half = halves.cast(value, HALF)
            name, value.name = value.name, f"{value.name}.single"
            half.name = name
            graph.outputs[graph.outputs.index(value)] = half


def _sink(halves: _Halves) -> bool:
    """Widen after what moves numbers, not before; return whether anything changed."""
    changed = False
    for node in list(halves.graph):
        places = _moved(node)
        values = [node.inputs[place] for place in places]
        sources = [_cast_from(value, HALF) for value in values if value is not None]
        if not sources or None in sources or not all(_is(value, SINGLE) for value in values):
            continue
        for place, source in zip(places, sources, strict=True):
            node.replace_input_with(place, source)
        for output in node.outputs:
            halves.store(output)
        changed = True
    return changed


def _rise(halves: _Halves) -> bool:
    """Narrow before what moves numbers, not after, where nothing wants them wide."""
    changed = False
    for node in reversed(list(halves.graph)):
        places = _moved(node)
        uses = [use.node for output in node.outputs for use in output.uses()]
        wide = any(output.is_graph_output() or not _is(output, SINGLE) for output in node.outputs)
        if not places or not uses or wide or not all(_narrows(user) for user in uses):
            continue
        halves.narrow(node, places)
        for output in node.outputs:
            output.type = ir.TensorType(HALF)
        for user in dict.fromkeys(uses):
            _drop(halves.graph, user, user.inputs[0])
        changed = True
    return changed


def _narrows(node: ir.Node) -> bool:
    return node.op_type == "Cast" and _is(node.outputs[0], HALF) and not node.domain


def _drop(graph: ir.Graph, cast: ir.Node, source: ir.Value | None) -> None:
    """Let the users of a cast use what it gives back, under the cast's name where the graph returns it."""
    made = cast.outputs[0]
    assert source is not None
    if made.is_graph_output():
        made.name, source.name = f"{made.name}.same", made.name
    ir.convenience.replace_all_uses_with(made, source, replace_graph_outputs=True)
    graph.remove(cast, safe=True)


def _cancel(graph: ir.Graph) -> None:
    """Cast(Cast(x, float32), float16) -> x."""
    for node in list(graph):
        source = _cast_from(node.inputs[0], HALF) if _narrows(node) else None
        if source is not None and not (source.is_graph_input() and node.outputs[0].is_graph_output()):
            _drop(graph, node, source)


def finite_masks(graph: ir.Graph) -> None:
    """Let the score of a forbidden key be the lowest number of float16, which is 0 after a softmax too."""
    lowest = np.finfo(np.float32).min
    for value in graph.initializers.values():
        tensor = value.const_value
        if (
            tensor is not None
            and tensor.dtype == SINGLE
            and tensor.size == 1
            and tensor.numpy().item() == lowest
        ):
            value.const_value = ir.tensor(np.full(tensor.shape.numpy(), LOWEST, np.float32), name=value.name)


def half_products(model: ir.Model) -> int:
    """Return the number of products that are float16 now."""
    graph = model.graph
    halves = _Halves(graph)
    for value in [*graph.initializers.values(), *graph.inputs]:
        matrix = is_parameter(value) and len(dims_of(value) or ()) > 1
        if _is(value, SINGLE) and (matrix or (value.name or "").startswith(CACHES)):
            halves.store(value)
    for gemm in [node for node in graph if node.op_type == "Gemm" and not node.domain]:
        _add_apart(graph, gemm)
    products = list(_products(graph))
    for node, places in products:
        halves.narrow(node, places)
        for output in node.outputs:
            halves.store(output)
    _halve_outputs(halves)
    while _sink(halves) or _rise(halves):
        pass
    _cancel(graph)
    finite_masks(graph)
    graph.sort()
    return len(products)
