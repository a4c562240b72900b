"""Where nodes ran, as ONNX Runtime's profile tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.runtime.placement import PlacedNode, floats_off, placement, read_profile

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.mark.parametrize("options", [{}, {"target": "portable"}, {"seq_len": 8, "batch_size": 1}])
def test_on_the_cpu_every_node_runs_on_the_cpu(tiny_bundle: Any, options: dict[str, Any]) -> None:
    nodes = placement(tiny_bundle(**options).path, "cpu", threads=1)
    assert {node.provider for node in nodes} == {CPU}
    assert not floats_off(nodes, CPU)
    assert {"MatMul", "Shape"} & {node.op for node in nodes}
    assert any(node.is_float for node in floats_off(nodes, CUDA))


def test_integer_nodes_may_be_anywhere(tmp_path: Path) -> None:
    def event(name: str, provider: str, kind: str) -> dict[str, Any]:
        shapes = [{kind: [1, 2]}]
        return {
            "cat": "Node",
            "name": f"{name}_kernel_time",
            "args": {"op_name": name, "provider": provider, "output_type_shape": shapes},
        }

    events = [
        {"cat": "Session", "name": "model_run", "args": {}},
        {"cat": "Node", "name": "MatMul_fence_before", "args": {"op_name": "MatMul"}},
        event("Shape", CPU, "int64"),
        event("MatMul", CUDA, "float"),
        event("Gather", CPU, "float16"),
    ]
    (tmp_path / "profile.json").write_text(json.dumps(events))
    nodes = list(read_profile(tmp_path / "profile.json"))
    assert len(nodes) == 3
    assert floats_off(nodes, CUDA) == (PlacedNode(name="Gather", op="Gather", provider=CPU, is_float=True),)
