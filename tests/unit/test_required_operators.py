"""required_operators.config against the graphs that ONNX Runtime itself saves after it optimised them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import OPERATORS_FILE
from tests.saved_operators import listed, missing

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
    "portable, opset 17": ({}, {"target": "portable", "opset": 17}),
    "portable, opset 17, tanh": ({"activation": "gelu_tanh"}, {"target": "portable", "opset": 17}),
    "plain": ({}, {"kv_cache": False}),
}
"""Configuration and options of bundles; tests/interop has those of integer weights."""


@pytest.mark.parametrize("case", CASES)
def test_what_onnxruntime_runs_is_in_the_file(tiny_bundle: Any, tmp_path: Path, case: str) -> None:
    config, options = CASES[case]
    assert not missing(tiny_bundle(config=config, **options).path, tmp_path)


def test_the_file_is_no_list_of_everything(tiny_bundle: Any) -> None:
    found = listed(tiny_bundle(target="portable").path)
    assert ("com.microsoft", "GroupQueryAttention") not in found
    assert ("com.microsoft", "MatMulNBits") not in found
    assert len(found) < 50


def test_a_line_has_domain_opset_and_operators_in_order(tiny_bundle: Any) -> None:
    lines = (tiny_bundle().path / OPERATORS_FILE).read_text(encoding="utf-8").splitlines()
    told = [line for line in lines if not line.startswith("#")]
    assert [line.rsplit(";", 1)[0] for line in told] == ["ai.onnx;21", "com.microsoft;1"]
    for line in told:
        names = line.split(";")[2].split(",")
        assert names == sorted(set(names))
