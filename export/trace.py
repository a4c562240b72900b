"""Trace a module into an ONNX graph with the names and dims that were promised."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx_ir as ir
import torch

from gpt_onnx.errors import ExportError, GptOnnxError

from .graphs import BATCH, PAST, SEQUENCE, TOTAL, Graph, example_shape, example_tensor
from .passes.lower_opset import TRACED
from .user_code import user_code

_LOGGERS = ("torch.onnx", "torch.export", "torch.fx")
REMEDIES = (
    ("data-dependent", "replace an if on values by torch.where, and a loop by a fixed number of steps"),
    ("", "write its forward with operations on tensors alone"),
)
"""What the tracer's reason holds, and what helps; the first that fits."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the tracer says about itself; our own checks speak instead.

    It warns, logs, and where it fails it prints the whole graph to stderr. What the module prints is lost
    with that: it was run, and heard, before.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    sink = io.StringIO()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _nest_cache(by_name: Mapping[str, Any]) -> dict[str, Any]:
    """Gather the cache's entries into the one list argument ``past``."""
    nested = {name: value for name, value in by_name.items() if not name.startswith("past_key_values")}
    cache = [value for name, value in by_name.items() if name.startswith("past_key_values")]
    return nested | ({"past": cache} if cache else {})


def _dynamic_shapes(graph: Graph) -> dict[str, Any]:
    """Map each promised name to what torch.export takes; the mask's length follows from the others."""
    dim = torch.export.Dim
    makers: Mapping[str, Callable[[], Any]] = {
        BATCH: lambda: dim(BATCH, min=1),
        SEQUENCE: lambda: dim(SEQUENCE, min=1, max=graph.sequence_limit),
        PAST: lambda: dim(PAST, min=0),
        TOTAL: lambda: dim.AUTO,
    }
    names = {dim for dims in graph.inputs.values() for dim in dims if isinstance(dim, str)}
    table = {name: makers[name]() for name in names}  # those needed alone: a frozen length may be 1
    shapes: dict[str, Any] = {}
    for name, dims in graph.inputs.items():
        shapes[name] = {axis: table[dim] for axis, dim in enumerate(dims) if isinstance(dim, str)}
    return _nest_cache(shapes)


def trace(graph: Graph, sizes: Mapping[str, int]) -> ir.Model:
    """Return the traced graph, unoptimised, with the promised input and output names.

    Raises:
        ExportError: if the module cannot be traced, with the tracer's own reason.
    """
    examples = {name: example_tensor(name, example_shape(dims, sizes)) for name, dims in graph.inputs.items()}
    try:
        with user_code(), _quiet(), torch.no_grad():
            program = torch.onnx.export(
                graph.module.eval(),
                (),
                kwargs=_nest_cache(examples),
                dynamic_shapes=_dynamic_shapes(graph),
                dynamo=True,
                optimize=False,
                opset_version=TRACED,
                verbose=False,
            )
    except GptOnnxError:
        raise
    except Exception as exc:  # the tracer raises many kinds
        raise ExportError(f"the module could not be traced: {_reason(exc)}") from exc
    assert program is not None
    return _named(program.model, graph)


def _reason(exc: BaseException) -> str:
    """Return the first line of the innermost cause that says something, and what helps."""
    while exc.__cause__ is not None:
        exc = exc.__cause__
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    reason = lines[0].rstrip(".") if lines else type(exc).__name__
    remedy = next(remedy for word, remedy in REMEDIES if word in reason.lower())
    return f"{reason}; {remedy}."


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
