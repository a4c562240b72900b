"""What positions cost: the learned table's parameters, and the bytes that a formula needs in a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.config import GPTConfig, named_config
from gpt_onnx.model import skeleton

from .encodings import Shipped, export_graph, run_graph

NAMES = ("sotu-learned", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3")
FLOAT32_BYTES, FLOAT16_BYTES = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCost:
    """What a learned table costs in one configuration."""

    name: str
    """Of the configuration."""
    context_length: int
    """Rows of the table."""
    n_embd: int
    """Columns of the table."""
    model_parameters: int
    """Of the whole model, the table included."""

    @property
    def parameters(self) -> int:
        """Of the table."""
        return self.context_length * self.n_embd

    @property
    def share(self) -> float:
        """The table's part of the model, from 0 to 1."""
        return self.parameters / self.model_parameters


def model_parameters(config: GPTConfig) -> int:
    """Count a model's parameters without making them."""
    return skeleton(config).parameter_count()


def table_costs(names: Sequence[str] = NAMES) -> list[TableCost]:
    """Return what the learned table costs in each named configuration."""
    return [
        TableCost(
            name=name,
            context_length=config.context_length,
            n_embd=config.n_embd,
            model_parameters=model_parameters(config),
        )
        for name, config in ((name, named_config(name)) for name in names)
    ]


def constant_bytes(model: Any) -> int:
    """Return the bytes of all constants that an ONNX graph stores, initializers and Constant nodes."""
    from onnx import numpy_helper

    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        tensors += [attribute.t for attribute in node.attribute if attribute.HasField("t")]
    return sum(numpy_helper.to_array(tensor).nbytes for tensor in tensors)


def peak_bytes(nodes: Sequence[tuple[Sequence[str], Sequence[str]]], sizes: Mapping[str, int]) -> int:
    """Return the most bytes alive at once if each result lives from its node to its last reader.

    Args:
        nodes: Inputs and outputs of each node, in the order in which they run.
        sizes: Bytes of each result; names that are missing (inputs, constants) cost nothing.
    """
    last = {name: index for index, (inputs, outputs) in enumerate(nodes) for name in (*outputs, *inputs)}
    alive = peak = 0
    for index, (inputs, outputs) in enumerate(nodes):
        alive += sum(sizes.get(name, 0) for name in outputs)
        peak = max(peak, alive)
        alive -= sum(sizes.get(name, 0) for name in {*inputs, *outputs} if last[name] == index)
    return peak


def working_bytes(model: Any, length: int) -> int:
    """Return ``peak_bytes`` of a graph of positions (1, length); all its results are made outputs and run."""
    import onnx

    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = [(list(node.input), list(node.output)) for node in model.graph.node if node.op_type != "Constant"]
    exposed = onnx.ModelProto.FromString(model.SerializeToString())
    del exposed.graph.output[:]
    names = [name for _, outputs in nodes for name in outputs if name not in constants]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    results: list[NDArray[Any]] = run_graph(exposed, np.arange(length))
    return peak_bytes(nodes, {name: array.nbytes for name, array in zip(names, results, strict=True)})


def graph_costs(n_embd: int, lengths: Sequence[int]) -> tuple[int, list[int]]:
    """Return the bytes of the encoding's constants in a graph, and its working bytes for each length."""
    model = export_graph(Shipped(n_embd))
    return constant_bytes(model), [working_bytes(model, length) for length in lengths]
