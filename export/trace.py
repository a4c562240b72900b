"""Trace a module into an ONNX graph with the names and dims that were promised."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir
import torch

from gpt_onnx.errors import ExportError, GptOnnxError

from .graphs import BATCH, PAST, SEQUENCE, TOTAL, Graph, example_shape, example_tensor

TRACE_OPSET = 21
_HARMLESS: tuple[tuple[str, type[Warning]], ...] = (
    (r"(?s).*The axis name: .* will not be used", UserWarning),
    (r"(?s).*isinstance\(treespec, LeafSpec\)", FutureWarning),
    ("", DeprecationWarning),
)
"""What the tracer warns of whatever it traces: the beginning of the message, and its kind."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the tracer says about itself; our own checks speak instead."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            for message, category in _HARMLESS:
                warnings.filterwarnings("ignore", message, category)
            yield
    finally:
        logger.setLevel(level)


def _dimension_table(graph: Graph) -> dict[str, Any]:
    """Map each promised name to what torch.export takes; the mask's length follows from the others."""
    dim = torch.export.Dim
    return {
        BATCH: dim(BATCH, min=1),
        SEQUENCE: dim(SEQUENCE, min=1, max=graph.sequence_limit),
        PAST: dim(PAST, min=0),
        TOTAL: dim.AUTO,
    }


def _dynamic_shapes(graph: Graph) -> dict[str, Any]:
    table = _dimension_table(graph)
    shapes: dict[str, Any] = {}
    for name, dims in graph.inputs.items():
        shapes[name] = {axis: table[dim] for axis, dim in enumerate(dims) if isinstance(dim, str)}
    return _nest_cache(shapes)


def _nest_cache(by_name: Mapping[str, Any]) -> dict[str, Any]:
    """Gather the cache's entries into the one list argument ``past``."""
    nested = {name: value for name, value in by_name.items() if not name.startswith("past_key_values")}
    cache = [value for name, value in by_name.items() if name.startswith("past_key_values")]
    return nested | ({"past": cache} if cache else {})


def trace(graph: Graph, sizes: Mapping[str, int]) -> ir.Model:
    """Return the traced graph, unoptimised, with the promised input and output names.

    Raises:
        ExportError: if the module cannot be traced, with the tracer's own reason.
    """
    examples = {name: example_tensor(name, example_shape(dims, sizes)) for name, dims in graph.inputs.items()}
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                graph.module.eval(),
                (),
                kwargs=_nest_cache(examples),
                dynamic_shapes=_dynamic_shapes(graph),
                dynamo=True,
                optimize=False,
                opset_version=TRACE_OPSET,
                verbose=False,
            )
    except GptOnnxError:
        raise
    except Exception as exc:  # the tracer raises many kinds
        raise ExportError(f"the module could not be traced: {_reason(exc)}") from exc
    assert program is not None
    return _named(program.model, graph)


def _reason(exc: BaseException) -> str:
    """Return the first line of the innermost cause that says something."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[0] if lines else type(exc).__name__


def _named(model: ir.Model, graph: Graph) -> ir.Model:
    """Give inputs and outputs their promised names; shapes are checked later, not overwritten."""
    for kind, values, promised in (
        ("inputs", model.graph.inputs, graph.inputs),
        ("outputs", model.graph.outputs, graph.outputs),
    ):
        if len(values) != len(promised):
            found = [value.name for value in values]
            raise ExportError(f"the traced graph has the {kind} {found}; {list(promised)} were expected.")
        for value, name in zip(values, promised, strict=True):
            value.name = name
    return model
