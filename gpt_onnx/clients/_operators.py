"""required_operators.config: what a reduced build of ONNX Runtime must have to run a bundle.

A line a domain, "domain;opset;Op1,Op2", as ONNX Runtime's ``build.py --include_ops_by_config`` reads it:

    ai.onnx;21;Add,Cast,Gather,...
    com.microsoft;1;BiasGelu,GroupQueryAttention,...

ONNX Runtime rewrites a graph when it loads it, and the operators that it puts in must be there too. Which
ones those are depends on what it finds, so FUSIONS gives for operators of ours those that it may make of
them; tests compare the file with the graphs that ONNX Runtime saves after optimising.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpt_onnx.bundle import GraphSummary
from gpt_onnx.bundle._ops import MICROSOFT_DOMAIN
from gpt_onnx.bundle._summary import STANDARD_DOMAIN

OPERATORS_FILE = "required_operators.config"
HEADER = """\
# Operators for a reduced build of ONNX Runtime (its option --include_ops_by_config), those that it puts in
# itself when it optimises the graph included.
"""
Operator = tuple[str, str]
"""Domain ("" for the standard ones) and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """Operators that ONNX Runtime makes of others."""

    of: frozenset[Operator]
    """All of these are in the graph."""
    makes: Operator


def _standard(*names: str) -> frozenset[Operator]:
    return frozenset((STANDARD_DOMAIN, name) for name in names)


FUSIONS: tuple[Fusion, ...] = (
    Fusion(of=_standard("Gelu", "Add"), makes=(MICROSOFT_DOMAIN, "BiasGelu")),
    Fusion(of=_standard("Erf", "Add"), makes=(MICROSOFT_DOMAIN, "BiasGelu")),
    Fusion(of=_standard("Erf"), makes=(MICROSOFT_DOMAIN, "Gelu")),
    Fusion(of=_standard("Gelu"), makes=(MICROSOFT_DOMAIN, "FastGelu")),
    Fusion(of=_standard("Tanh"), makes=(MICROSOFT_DOMAIN, "FastGelu")),
    Fusion(of=_standard("Sigmoid", "Mul"), makes=(MICROSOFT_DOMAIN, "QuickGelu")),
    Fusion(of=_standard("MatMul", "Transpose"), makes=(MICROSOFT_DOMAIN, "FusedMatMul")),
    Fusion(of=_standard("MatMul", "Mul"), makes=(MICROSOFT_DOMAIN, "FusedMatMul")),
    Fusion(of=_standard("LayerNormalization", "Add"), makes=(MICROSOFT_DOMAIN, "SkipLayerNormalization")),
    Fusion(of=_standard("ReduceMean", "Sqrt"), makes=(STANDARD_DOMAIN, "SimplifiedLayerNormalization")),
    Fusion(of=_standard("DequantizeLinear", "MatMul"), makes=(MICROSOFT_DOMAIN, "MatMulNBits")),
)


def _fused(found: frozenset[Operator]) -> Iterator[Operator]:
    """Yield what ONNX Runtime may make of the operators found."""
    yield from (fusion.makes for fusion in FUSIONS if fusion.of <= found)


def _lines(operators: Iterable[tuple[Operator, int]]) -> Iterator[str]:
    grouped: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for (domain, name), opset in operators:
        grouped[domain or "ai.onnx", opset].add(name)
    for (domain, opset), names in sorted(grouped.items()):
        yield f"{domain};{opset};{','.join(sorted(names))}\n"


def _wanted(summaries: Iterable[GraphSummary]) -> set[tuple[Operator, int]]:
    """Return the operators that graphs have and may get, each with its opset."""
    wanted: set[tuple[Operator, int]] = set()
    for summary in summaries:
        found = frozenset(summary.op_counts)
        for operator in (*found, *_fused(found)):
            wanted.add((operator, summary.opsets.get(operator[0], 1)))
    return wanted


def required_operators(summaries: Iterable[GraphSummary]) -> str:
    """Return the content of required_operators.config for the graphs of a bundle."""
    return HEADER + "".join(_lines(_wanted(summaries)))


def listed_operators(text: str) -> set[tuple[str, str, str]]:
    """Return domain, opset and name of each operator that a required_operators.config lists."""
    lines = (line.split(";") for line in text.splitlines() if not line.startswith("#"))
    parts = (line for line in lines if len(line) == 3)
    return {(domain, opset, name) for domain, opset, names in parts for name in names.split(",")}


def missing_operators(text: str, summaries: Iterable[GraphSummary]) -> list[str]:
    """Return what a required_operators.config lacks for the graphs of a bundle, as "domain;opset;Op"."""
    wanted = listed_operators("".join(_lines(_wanted(summaries))))
    return [";".join(operator) for operator in sorted(wanted - listed_operators(text))]
