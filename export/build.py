"""From a source to ONNX files: trace, rewrite, hold the graph to its promises, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

import gpt_onnx

from .gpt_source import Source, Traced
from .graphs import PAST
from .options import ExportOptions
from .passes import CACHED_PASSES, PASSES, run_passes
from .promises import (
    BakedSizeError,
    check_dims,
    check_no_example_size,
    check_operators,
    rename_mask_length,
)
from .targets import MICROSOFT, STANDARD, Target, find_target
from .weights import bind, collect_parameters, collect_tables

DATA_FILE = "onnx/model.onnx_data"
TRACES = 3  # at most: another trace tells a size of the example from a number of the model's own

Progress = Callable[[str, int, int], None]
"""Told a step's name, how much of it is done, and how much there is."""


def _rewrite(traced: Traced, source: Source, target: Target) -> dict[str, int]:
    """Run the passes on one traced graph, and hold it to its promise."""
    model, graph = traced.model, traced.graph
    names = source.parameter_names()
    for name in names:
        if name in model.graph.initializers:
            model.graph.initializers[name].const_value = None  # to no pass a constant
    fired = run_passes(model, CACHED_PASSES if _grows(graph.inputs) else PASSES)
    check_operators(model, target.domains if source.attention is None else (STANDARD,))
    rename_mask_length(model, graph)
    check_dims(model, graph)
    dynamic = {dim for dims in graph.inputs.values() for dim in dims if isinstance(dim, str)}
    check_no_example_size(model, traced.sizes, dynamic)
    _stamp(model, graph.role, target)
    return fired


def _grows(inputs: Mapping[str, Any]) -> bool:
    """Whether a graph has a cache of any length: it is then the one that also says which logits it keeps."""
    return any(PAST in dims for dims in inputs.values())


def _stamp(model: ir.Model, role: str, target: Target) -> None:
    """Pin versions and say who made the graph."""
    model.ir_version = target.ir_version
    model.graph.name = role
    model.producer_name, model.producer_version = "gpt-onnx", gpt_onnx.__version__
    fused = any(node.domain == MICROSOFT for node in model.graph)
    model.opset_imports.clear()
    model.opset_imports.update({STANDARD: target.opset} | ({MICROSOFT: 1} if fused else {}))


def _traced(source: Source, options: ExportOptions) -> tuple[list[Traced], dict[str, int]]:
    """Trace and rewrite all graphs; return them, and how often each pass fired.

    A number that looks like a size of the example is traced again with another size: if it stays, it was the
    model's own.

    Raises:
        ExportError: if a graph cannot be made or breaks its promise.
    """
    avoid: frozenset[int] = frozenset()
    target = find_target(options.target)
    for left in reversed(range(TRACES)):
        traced = source.trace(options, avoid)
        rewrites: dict[str, int] = {}
        try:
            for part in traced:
                for name, count in _rewrite(part, source, target).items():
                    rewrites[name] = rewrites.get(name, 0) + count
        except BakedSizeError as exc:
            if not left:
                raise
            avoid |= {exc.size}
            continue
        return traced, rewrites
    raise AssertionError("the last trace returns or raises")


def write_graphs(
    source: Source, options: ExportOptions, staging: Path, progress: Progress
) -> tuple[dict[str, int], int]:
    """Trace, rewrite and write the graphs and their one data file; return the rewrites and the payload."""
    progress("trace", 0, 1)
    traced, rewrites = _traced(source, options)
    progress("trace", 1, 1)
    models = {part.graph.role: part.model for part in traced}
    weights = collect_parameters(models.values(), source.parameter_names(), source.weight)
    weights += collect_tables(models)
    (staging / "onnx").mkdir()
    bind(weights, staging / DATA_FILE, lambda done, total: progress("write", done, total))
    for role, model in models.items():
        ir.save(model, staging / f"onnx/{role}.onnx")
    return rewrites, sum(weight.nbytes for weight in weights)
