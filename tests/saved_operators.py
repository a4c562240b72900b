"""The operators that a bundle's required_operators.config lists, and those that ONNX Runtime runs."""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.clients import OPERATORS_FILE

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
Operators = set[tuple[str, str]]
"""Domain and name."""


def listed(bundle: Path) -> Operators:
    """Read the file as ONNX Runtime's build does: "domain;opset;Op1,Op2"."""
    lines = (bundle / OPERATORS_FILE).read_text(encoding="utf-8").splitlines()
    found = set()
    for domain, opset, names in (line.split(";") for line in lines if not line.startswith("#")):
        assert opset.isdigit()
        found |= {(domain, name) for name in names.split(",")}
    return found


def saved(graph: Path, level: str, folder: Path) -> Operators:
    """Return the operators of the graph that ONNX Runtime writes after optimising at a level."""
    import onnx
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(folder / "saved.onnx")
    ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(folder / "saved.onnx", load_external_data=False).graph.node
    return {(node.domain or "ai.onnx", node.op_type) for node in nodes}


def missing(bundle: Path, folder: Path) -> Operators:
    """Return what ONNX Runtime runs at some level, of some graph of a bundle, and its file does not list."""
    graphs = list(bundle.glob("onnx/*.onnx"))
    run = set().union(*(saved(graph, level, folder) for graph in graphs for level in LEVELS))
    return run - listed(bundle)
