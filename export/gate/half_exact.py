"""A bundle in float16 as the same bundle in float32, so that small faults show.

What float16 costs hides a lost bias or an epsilon of 1e-6. The same graphs with float32 in every place of
float16, and the same numbers in their weights, are held to what float32 costs. What ships is looked at too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gpt_onnx.bundle import Bundle, seal
from gpt_onnx.export.weights import Weight, bind

from .trial import NOT_CHECKED

HALF, SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT


def _widened(tensor: ir.TensorProtocol) -> NDArray[Any]:
    array = tensor.numpy()
    return array.astype(np.float32) if tensor.dtype == HALF else array


def widen(model: ir.Model) -> None:
    """Put float32 in every place of float16, but for the weights outside of the graph."""
    graph = model.graph
    for node in graph:
        if node.op_type == "Cast" and node.attributes["to"].as_int() == HALF:
            node.attributes["to"] = ir.AttrInt64("to", int(SINGLE))
    made = [output for node in graph for output in node.outputs]
    for value in (*graph.inputs, *graph.initializers.values(), *made):
        if value.dtype == HALF:
            value.type = ir.TensorType(SINGLE)
        tensor = value.const_value
        if tensor is not None and tensor.dtype == HALF and not isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.tensor(_widened(tensor), name=value.name)


def _place(tensor: ir.ExternalTensor) -> tuple[str, int]:
    return str(tensor.location), int(tensor.offset or 0)


def _weights(models: list[ir.Model]) -> list[Weight]:
    """Return the weights outside of the graphs, each once, in float32 where they are float16."""
    users: dict[tuple[str, int], list[ir.Value]] = {}
    for model in models:
        for value in model.graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                users.setdefault(_place(value.const_value), []).append(value)
    weights = []
    for values in users.values():
        tensor = values[0].const_value
        assert tensor is not None
        weights.append(
            Weight(
                name=values[0].name or "",
                shape=tuple(int(dim) for dim in tensor.shape.numpy()),
                dtype=SINGLE if tensor.dtype == HALF else tensor.dtype,
                read=partial(_widened, tensor),
                values=tuple(values),
            )
        )
    return weights


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


@contextlib.contextmanager
def single_bundle(bundle: Bundle) -> Iterator[Path]:
    """Make the same bundle in float32, for as long as it takes."""
    graph = bundle.manifest.graph
    with tempfile.TemporaryDirectory(prefix="gpt-onnx-exact-") as name:
        folder = Path(name)
        (folder / "onnx").mkdir()
        models = {path: ir.load(bundle.path / path) for path in graph.graphs.values()}
        for model in models.values():
            widen(model)
        weights = _weights(list(models.values()))
        if graph.data is not None:
            bind(weights, folder / graph.data, _silent)
        for path, model in models.items():
            ir.save(model, folder / path)
        whole = dataclasses.replace(graph, shards=[])
        seal(folder, bundle.manifest.replace(precision="fp32", graph=whole, **NOT_CHECKED))
        yield folder
