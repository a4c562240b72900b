"""strip_traces: no stack trace, path or comment of the machine that traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from gpt_onnx.export.passes.strip_traces import strip_traces

GRAPH = "(float[2] x) => (float[2] y) { a = Tanh(x)\n y = Sin(a) }"
SECRET = "/home/somebody/model.py"


def _noted(parse: Any) -> Any:
    model = parse(GRAPH)
    first, second = model.graph
    first.metadata_props["pkg.torch.onnx.stack_trace"] = SECRET
    second.doc_string = SECRET
    second.outputs[0].metadata_props["note"] = SECRET
    model.graph.metadata_props["note"] = SECRET
    model.graph.doc_string = SECRET
    model.metadata_props["note"] = SECRET
    model.doc_string = SECRET
    return model


def test_fires_for_each_node_with_a_note(parse: Any) -> None:
    assert strip_traces(_noted(parse)) == 2


def test_leaves_the_nodes_and_no_note(parse: Any) -> None:
    model = _noted(parse)
    assert SECRET.encode() in ir.to_proto(model).SerializeToString()
    strip_traces(model)
    assert [node.op_type for node in model.graph] == ["Tanh", "Sin"]
    assert SECRET.encode() not in ir.to_proto(model).SerializeToString()


def test_computes_the_same(parse: Any, evaluate: Any) -> None:
    model, x = _noted(parse), np.array([0.5, -2.0], np.float32)
    before = evaluate(model, {"x": x})[0]
    strip_traces(model)
    np.testing.assert_array_equal(evaluate(model, {"x": x})[0], before)


def test_does_nothing_where_there_is_none(parse: Any) -> None:
    assert strip_traces(parse(GRAPH)) == 0
