"""After the passes: every promise of the graph contract, asserted on the graph itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from gpt_onnx.errors import ExportError

from .graphs import TOTAL, Dims, Graph
from .passes import KEEP
from .passes._graph import dims_of, is_parameter


def rename_mask_length(model: ir.Model, graph: Graph) -> None:
    """Give the mask's length its promised name; the tracer makes one up where nothing ties it to the others."""
    for value in model.graph.inputs:
        promised = graph.inputs.get(value.name or "")
        if promised is None or TOTAL not in promised or value.shape is None:
            continue
        axis = promised.index(TOTAL)
        if not isinstance(value.shape[axis], int):
            value.shape[axis] = ir.SymbolicDim(TOTAL)


def check_dims(model: ir.Model, graph: Graph) -> None:
    """Compare the dims of every input and output with the promised ones.

    Raises:
        ExportError: naming the first that differs.
    """
    for values, promised in ((model.graph.inputs, graph.inputs), (model.graph.outputs, graph.outputs)):
        for value in values:
            if value.name != KEEP:
                _check_one(value, promised[value.name or ""])


def _check_one(value: ir.Value, promised: Dims) -> None:
    found = dims_of(value)
    if found is None or tuple(found) != promised:
        raise ExportError(
            f"{value.name} came out of the trace with the dims {found}; {list(promised)} were promised. "
            "The module fixes a size that was to stay dynamic."
        )


def check_no_example_size(model: ir.Model, sizes: Mapping[str, int], names: set[str]) -> None:
    """Look for the sizes of the traced example among the graph's integer constants.

    Args:
        model: The graph.
        sizes: The example's sizes by dim name.
        names: The dims that are dynamic, whose sizes must not be found.

    Raises:
        ExportError: naming the constant and the size.
    """
    forbidden = {size: name for name, size in sizes.items() if name in names}
    for name, tensor in _integer_constants(model):
        for number in np.unique(tensor):
            if int(number) in forbidden:
                raise ExportError(
                    f"the example's {forbidden[int(number)]} of {number} was baked into the constant {name}; "
                    "the module computes with a size that was to stay dynamic."
                )


LONGEST_SHAPE = 8  # a constant with more elements is a range or a table, not a shape


def _integer_constants(model: ir.Model) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and values of every integer constant that can be a shape."""
    values = [value for value in model.graph.initializers.values() if not is_parameter(value)]
    values += [node.outputs[0] for node in model.graph if node.op_type == "Constant"]
    for value in values:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.dtype.is_integer() and tensor.size <= LONGEST_SHAPE:
            yield value.name or "?", tensor.numpy()
