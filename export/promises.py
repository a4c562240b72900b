"""After the passes: every promise of the graph contract, asserted on the graph itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from gpt_onnx.errors import ExportError

from .graphs import BATCH, SEQUENCE, TOTAL, Dim, Dims, Graph
from .passes import KEEP
from .passes._graph import dims_of, is_parameter

_GRAPH_KINDS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
FREEZERS = {SEQUENCE: "--seq-len N", BATCH: "--batch-size N"}
LONGEST_SHAPE = 8  # a constant with more elements is a range or a table, not a shape


class BakedSizeError(ExportError):
    """A size of the example is among the graph's constants; ``size`` is the number."""

    def __init__(self, size: int, dim: str, constant: str) -> None:
        self.size = size
        super().__init__(
            f"the example's {dim} of {size} was baked into the constant {constant}: the module computes with "
            f"a size that was to stay dynamic; {_remedy([dim])}."
        )


def _remedy(dims: Iterable[Dim]) -> str:
    """Say how the dims that a module fixes can be frozen."""
    options = [FREEZERS[dim] for dim in dims if dim in FREEZERS]
    return f"freeze it with {' and '.join(options)}" if options else "take it from the ids at each run"


def rename_mask_length(model: ir.Model, graph: Graph) -> None:
    """Give the mask's length its promised name; the tracer makes one up, as no dim of its own has it."""
    for value in model.graph.inputs:
        promised = graph.inputs.get(value.name or "")
        if promised is None or TOTAL not in promised or value.shape is None:
            continue
        made_up = value.shape[promised.index(TOTAL)]
        if not isinstance(made_up, int) and made_up.value is not None:
            _rename_dim(model, made_up.value)


def _rename_dim(model: ir.Model, made_up: str) -> None:
    """Call a dim TOTAL wherever it occurs, alone or in an expression."""
    word = re.compile(rf"\b{re.escape(made_up)}\b")

    def renamed(dim: int | ir.SymbolicDim) -> int | str | None:
        if isinstance(dim, int) or dim.value is None:
            return dim if isinstance(dim, int) else None
        return TOTAL if dim.value == made_up else word.sub(f"({TOTAL})", dim.value)

    made = (output for node in model.graph for output in node.outputs)
    for value in (*model.graph.inputs, *made):
        if value.shape is not None:
            value.shape = ir.Shape([renamed(dim) for dim in value.shape])


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
        fixed = [want for got, want in zip(found or (), promised, strict=False) if got != want]
        raise ExportError(
            f"{value.name} came out of the trace with the dims {found}; {list(promised)} were promised: the "
            f"module fixes a size that was to stay dynamic; {_remedy(fixed)}."
        )


def check_operators(model: ir.Model, domains: Collection[str]) -> None:
    """Look for operators of other domains, and for those that hold a graph of their own.

    Args:
        model: The graph.
        domains: The domains that the target may use.

    Raises:
        ExportError: naming the first.
    """
    for node in model.graph:
        name = f"{node.domain}::{node.op_type}".removeprefix("::")
        if node.domain not in domains:
            raise ExportError(
                f"the trace uses the operator {name}, which the target's runtimes do not have; "
                "replace what makes it by plain operations."
            )
        if any(attribute.type in _GRAPH_KINDS for attribute in node.attributes.values()):
            raise ExportError(
                f"the trace has the branch or loop {name}; a graph of ours has none: replace it by "
                "torch.where or by a fixed number of steps."
            )


def check_no_example_size(model: ir.Model, sizes: Mapping[str, int], names: set[str]) -> None:
    """Look for the sizes of the traced example among the graph's integer constants.

    Args:
        model: The graph.
        sizes: The example's sizes by dim name.
        names: The dims that are dynamic, whose sizes must not be found.

    Raises:
        BakedSizeError: naming the constant and the size. It may be a number of the model's own by chance.
    """
    forbidden = {size: name for name, size in sizes.items() if name in names}
    for name, tensor in _integer_constants(model):
        for number in np.unique(tensor):
            if int(number) in forbidden:
                raise BakedSizeError(int(number), forbidden[int(number)], name)


def _integer_constants(model: ir.Model) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and values of every integer constant that can be a shape."""
    values = [value for value in model.graph.initializers.values() if not is_parameter(value)]
    values += [node.outputs[0] for node in model.graph if node.op_type == "Constant"]
    for value in values:
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and tensor.dtype.is_integer() and tensor.size <= LONGEST_SHAPE:
            yield value.name or "?", tensor.numpy()
