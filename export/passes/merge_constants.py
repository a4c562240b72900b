"""Constant nodes -> initializers, and equal initializers -> one.

A trace repeats each axis, shape and mask as often as the program mentions it: a module with one causal mask a
head has that many equal tables. Once they are one value, ``tidy`` sees that what is computed from them is one
node too. Parameters have no value here and are never merged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes import common

_Key = tuple[str, tuple[int, ...], str]


def merge_constants(model: ir.Model) -> int:
    """Return the number of constants that were repetitions of another."""
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    graph, kept, fired = model.graph, dict[_Key, ir.Value](), 0
    for value, key in list(_constants(graph)):
        first = kept.setdefault(key, value)
        if first is not value:
            ir.convenience.replace_all_uses_with(value, first)
            del graph.initializers[value.name or ""]
            fired += 1
    return fired


def _constants(graph: ir.Graph) -> Iterator[tuple[ir.Value, _Key]]:
    """Yield the initializers that have a value and are no input or output, each with what identifies it."""
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value.is_graph_input() or value.is_graph_output():
            continue
        shape = tuple(int(dim) for dim in tensor.shape.numpy())
        yield value, (tensor.dtype.name, shape, hashlib.sha256(tensor.tobytes()).hexdigest())
