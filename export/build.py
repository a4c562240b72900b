"""From a source to ONNX files: trace, rewrite, hold the graph to its promises, write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

import gpt_onnx
from gpt_onnx.bundle import QuantizationInfo
from gpt_onnx.errors import ConfigError

from .calibration import calibrated_weights
from .gpt_source import Source, Traced
from .graphs import PAST
from .limits import check_tensors
from .options import ExportOptions
from .passes import FORMS, Pass, QuantizeWeights, passes_of, run_passes
from .precisions import HALF
from .promises import (
    BakedSizeError,
    check_dims,
    check_no_example_size,
    check_operators,
    rename_mask_length,
)
from .quality_texts import Texts
from .quantize.choice import Choice
from .quantize.grid import Grid
from .quantize.quantized import Quantized
from .quantize.weights import QuantizedWeights
from .static import check_static
from .targets import MICROSOFT, STANDARD, find_target
from .weights import Weight, bind, collect_parameters, collect_parts, collect_tables, parts_in

DATA_FILE = "onnx/model.onnx_data"
TRACES = 3  # at most: another trace tells a size of the example from a number of the model's own

Progress = Callable[[str, int, int], None]
"""Told a step's name, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written."""

    rewrites: Mapping[str, int]
    """How often each pass fired."""
    payload_bytes: int
    """Bytes of all weights, each once."""
    quantization: QuantizationInfo | None


def _rewrite(traced: Traced, source: Source, options: ExportOptions, quantize: Pass | None) -> dict[str, int]:
    """Run the passes on one traced graph, and hold it to its promise."""
    model, graph, target = traced.model, traced.graph, find_target(options.target)
    names = source.parameter_names()
    for name in names:
        if name in model.graph.initializers:
            model.graph.initializers[name].const_value = None  # to no pass a constant
    fuses = target.fuses and source.attention is None and len(graph.outputs) > 1  # plain ones go anywhere
    opset, ir_version = options.versions
    passes = passes_of(
        keeps_logits=_grows(graph.inputs),
        fuses=fuses,
        quantize=quantize,
        half=options.precision == HALF,
        opset=opset,
        float64=target.float64,
    )
    fired = run_passes(model, passes)
    check_operators(model, target.domains if fuses or quantize else (STANDARD,))
    rename_mask_length(model, graph)
    check_dims(model, graph)
    dynamic = {dim for dims in graph.inputs.values() for dim in dims if isinstance(dim, str)}
    check_no_example_size(model, traced.sizes, dynamic)
    model.ir_version = ir_version
    _stamp(model, graph.role, opset)
    return fired


def _grows(inputs: Mapping[str, Any]) -> bool:
    """Whether a graph has a cache of any length: it is then the one that also says which logits it keeps."""
    return any(PAST in dims for dims in inputs.values())


def _stamp(model: ir.Model, role: str, opset: int) -> None:
    """Pin versions and say who made the graph."""
    model.graph.name = role
    model.producer_name, model.producer_version = "gpt-onnx", gpt_onnx.__version__
    fused = any(node.domain == MICROSOFT for node in model.graph)
    model.opset_imports.clear()
    model.opset_imports.update({STANDARD: opset} | ({MICROSOFT: 1} if fused else {}))


def _quantizer(options: ExportOptions) -> QuantizeWeights | None:
    """Return the pass that turns weights into integers; None where they stay float32."""
    choice = options.choice
    if choice is None:
        return None
    return QuantizeWeights(choice, FORMS[find_target(options.target).integers])


def _traced(
    source: Source, options: ExportOptions, quantize: Pass | None
) -> tuple[list[Traced], dict[str, int]]:
    """Trace and rewrite all graphs; return them, and how often each pass fired.

    A number that looks like a size of the example is traced again with another size: if it stays, it was the
    model's own.

    Raises:
        ExportError: if a graph cannot be made or breaks its promise.
        ConfigError: if weights cannot become integers as asked.
    """
    avoid: frozenset[int] = frozenset()
    for left in reversed(range(TRACES)):
        traced = source.trace(options, avoid)
        rewrites: dict[str, int] = {}
        try:
            for part in traced:
                for name, count in _rewrite(part, source, options, quantize).items():
                    rewrites[name] = rewrites.get(name, 0) + count
        except BakedSizeError as exc:
            if not left:
                raise
            avoid |= {exc.size}
            continue
        return traced, rewrites
    raise AssertionError("the last trace returns or raises")


def _models(traced: Iterable[Traced]) -> dict[str, ir.Model]:
    """Return each graph by its role."""
    return {part.graph.role: part.model for part in traced}


def _described(choice: Choice, quantize: QuantizeWeights, floats: Iterable[str]) -> QuantizationInfo:
    """Say for the manifest how weights were quantised.

    Raises:
        ConfigError: if none could be.
    """
    if quantize.block_size is None:
        raise ConfigError("the model has no weight that products or lookups use alone; export it in fp32.")
    return QuantizationInfo(
        bits=choice.bits,
        block_size=quantize.block_size,
        symmetric=choice.symmetric,
        accuracy_level=choice.accuracy_level,
        quantizer=choice.quantizer,
        head_bits=choice.head_bits or 32,
        float_weights=sorted({re.sub(r"\b\d+\b", "*", name) for name in floats}),
    )


Ready = Callable[[Mapping[str, Grid]], Mapping[str, Quantized]]
"""Returns the weights that are quantised before others are read, of those that are to be integers."""


def _quantized(
    models: Mapping[str, ir.Model], source: Source, options: ExportOptions, ready: Ready
) -> list[Weight]:
    """Return the weights that are integers, calibrated first where the quantiser wants that."""
    parts, names = parts_in(models.values()), source.parameter_names()
    if not parts or options.choice is None:
        return []
    made = ready({names[part.weight]: part.grid for _, part in parts})
    return collect_parts(parts, names, QuantizedWeights(source.weight, options.choice.quantizer, made))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The weights that a trace asks for, none of which is read."""

    names: frozenset[str]
    """The source's names of its parameters that take part."""
    sizes: tuple[int, ...]
    """Bytes of each tensor that would be stored."""
    tables: tuple[int, ...]
    """Of these, the module's constants that are too big for the graph, such as a mask."""
    block_size: int | None
    """Weights that share a scale; None where none becomes integers."""


def planned_weights(source: Source, options: ExportOptions) -> Planned:
    """Trace, and say which weights would be written.

    Raises:
        ExportError: if a graph cannot be made or breaks its promise.
        ConfigError: if weights cannot become integers as asked.
    """
    quantize, names = _quantizer(options), source.parameter_names()
    traced, _ = _traced(source, options, quantize)
    models = _models(traced)
    floats, tables = collect_parameters(models.values(), names, source.weight), collect_tables(models)
    integers = _quantized(models, source, options, lambda grids: {})
    info = _described(options.choice, quantize, []) if options.choice and quantize else None
    return Planned(
        names=frozenset(weight.name for weight in floats)
        | {names[part.weight] for _, part in parts_in(models.values())},
        sizes=tuple(weight.nbytes for weight in (*floats, *tables, *integers)),
        tables=tuple(weight.nbytes for weight in tables),
        block_size=None if info is None else info.block_size,
    )


def write_graphs(
    source: Source, options: ExportOptions, staging: Path, texts: Texts | None, progress: Progress
) -> Written:
    """Trace, rewrite and write the graphs and their data files.

    Args:
        source: The model.
        options: Of the export.
        staging: The bundle's folder.
        texts: What a calibrated quantiser reads; None where weights stay float32.
        progress: Told of each step.

    Raises:
        ExportError: if a graph cannot be made or breaks its promise.
        ConfigError: if weights cannot become integers as asked.
    """
    progress("trace", 0, 1)
    quantize, names = _quantizer(options), source.parameter_names()
    traced, rewrites = _traced(source, options, quantize)
    progress("trace", 1, 1)
    models = _models(traced)
    weights = collect_parameters(models.values(), names, source.weight)
    floats = [weight.name for weight in weights]
    info = _described(options.choice, quantize, floats) if options.choice and quantize else None
    weights += collect_tables(models) + _quantized(
        models, source, options, lambda grids: calibrated_weights(source, options, grids, texts, progress)
    )
    (staging / "onnx").mkdir()
    target = find_target(options.target)
    check_tensors(weights, target, options.largest_bits)
    bind(
        weights,
        staging / DATA_FILE,
        lambda done, total: progress("write", done, total),
        most=target.max_file_bytes,
    )
    for part in traced:
        if part.graph.is_static:
            check_static(part.model)
    for role, model in models.items():
        ir.save(model, staging / f"onnx/{role}.onnx")
    payload = sum(weight.nbytes for weight in weights)
    return Written(rewrites=rewrites, payload_bytes=payload, quantization=info)
