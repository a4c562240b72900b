"""required_operators.config against the graphs that ONNX Runtime itself saves after it optimised them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest

from gpt_onnx.clients import OPERATORS_FILE

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
LLAMA = {"position": "rotary", "norm": "rmsnorm", "activation": "swiglu", "bias": False}
CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cpu": ({}, {}),
    "cpu, tanh": ({"activation": "gelu_tanh"}, {}),
    "cpu, llama": (LLAMA, {}),
    "cpu, alibi": ({"position": "alibi"}, {}),
    "cpu, static": ({}, {"seq_len": 32}),
    "portable": ({}, {"target": "portable"}),
    "portable, llama": (LLAMA, {"target": "portable"}),
    "portable, relu": ({"activation": "relu", "position": "learned"}, {"target": "portable"}),
    "plain": ({}, {"kv_cache": False}),
}
"""Configuration and options of bundles."""


def _required(bundle: Path) -> set[tuple[str, str]]:
    """The lines of the file, as ONNX Runtime's reader of them takes them: "domain;opset;Op1,Op2"."""
    lines = (bundle / OPERATORS_FILE).read_text(encoding="utf-8").splitlines()
    found = set()
    for domain, opset, names in (line.split(";") for line in lines if not line.startswith("#")):
        assert int(opset) == (1 if domain == "com.microsoft" else 21)
        found |= {(domain, name) for name in names.split(",")}
    return found


def _saved(graph: Path, level: str, folder: Path) -> set[tuple[str, str]]:
    """The operators of the graph that ONNX Runtime runs at a level."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(folder / "saved.onnx")
    ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(folder / "saved.onnx", load_external_data=False).graph.node
    return {(node.domain or "ai.onnx", node.op_type) for node in nodes}


@pytest.mark.parametrize("case", CASES)
def test_what_onnxruntime_runs_is_in_the_file(tiny_bundle: Any, tmp_path: Path, case: str) -> None:
    config, options = CASES[case]
    bundle = tiny_bundle(config=config, **options).path
    required = _required(bundle)
    for graph in bundle.glob("onnx/*.onnx"):
        for level in LEVELS:
            missing = _saved(graph, level, tmp_path) - required
            assert not missing, f"{graph.name} at {level} has {missing}"


def test_the_file_is_no_list_of_everything(tiny_bundle: Any) -> None:
    required = _required(tiny_bundle(target="portable").path)
    assert ("com.microsoft", "GroupQueryAttention") not in required
    assert ("com.microsoft", "MatMulNBits") not in required
    assert len(required) < 50
