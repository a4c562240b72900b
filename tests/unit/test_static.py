"""Frozen graphs: no dim that is known at run time only, in any kind of model."""

from __future__ import annotations

import collections
from typing import Any

import onnx
import pytest

from gpt_onnx.errors import ExportError
from gpt_onnx.export.static import check_static

N = 24
LLAMA = {"norm": "rmsnorm", "activation": "swiglu", "bias": False, "tie_embeddings": False}
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "learned": {"position": "learned", "activation": "gelu_tanh", "n_kv_head": 4},
    "rotary": {"position": "rotary", **LLAMA},
    "interleaved": {"position": "rotary", "rope_style": "interleaved", **LLAMA},
    "alibi": {"position": "alibi"},
}
WAYS: dict[str, dict[str, Any]] = {
    "cpu fp32": {},
    "cpu int4": {"precision": "int4", "quantizer": "rtn", "block_size": 16},
    "portable fp32": {"target": "portable"},
    "portable int8": {"target": "portable", "precision": "int8", "block_size": 16},
    "portable fp16": {"target": "portable", "precision": "fp16"},
    "web fp16": {"target": "web", "precision": "fp16"},
    "opset 17": {"target": "portable", "opset": 17},
}
FORBIDDEN = {"Shape", "Size", "Range", "NonZero"}


def _values(graph: Any) -> list[Any]:
    return [*graph.input, *graph.output, *graph.value_info]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_dim_is_left_to_the_run(tiny_bundle: Any, kind: str, way: str) -> None:
    if (
        way != "cpu fp32"
        and kind in ("sinusoidal", "interleaved")
        and way not in ("portable fp32", "opset 17")
    ):
        pytest.skip("what differs from learned and rotary positions is looked at in float32")
    config = {"n_embd": 48, **KINDS[kind]}
    folder = tiny_bundle(config=config, seq_len=N, **{"target": "cpu", **WAYS[way]}).path
    for name in ("prefill", "decode"):
        model = onnx.load(folder / f"onnx/{name}.onnx", load_external_data=False)
        if not any(opset.domain for opset in model.opset_import):
            model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        ops = collections.Counter(node.op_type for node in model.graph.node)
        assert not FORBIDDEN & set(ops)
        constants = {tensor.name for tensor in model.graph.initializer}
        reshapes = [node for node in model.graph.node if node.op_type in ("Reshape", "Expand")]
        assert all(node.input[1] in constants for node in reshapes)
        told = {value.name for value in _values(model.graph)}
        assert {output for node in model.graph.node for output in node.output if output} <= told
        dims = [dim for value in _values(model.graph) for dim in value.type.tensor_type.shape.dim]
        assert all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in dims)


def test_both_graphs_share_one_file_of_weights(tiny_bundle: Any) -> None:
    bundle = tiny_bundle("portable", seq_len=N)
    assert [path.name for path in sorted(bundle.path.glob("onnx/*_data*"))] == ["model.onnx_data"]
    places = []
    for name in ("prefill", "decode"):
        model = onnx.load(bundle.path / f"onnx/{name}.onnx", load_external_data=False)
        outside = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
        places.append({t.name: [(e.key, e.value) for e in t.external_data] for t in outside})
    shared = places[0].keys() & places[1].keys()
    assert len(shared) == 4 * 2 + 1  # four matrices a layer, and the table
    assert all(places[0][name] == places[1][name] for name in shared)


def test_a_long_frozen_graph_has_its_positions_as_constants(tiny_bundle: Any) -> None:
    """Beyond what is folded otherwise: 1,024 numbers."""
    bundle = tiny_bundle("portable", seq_len=1100)
    model = onnx.load(bundle.path / "onnx/prefill.onnx", load_external_data=False)
    assert not FORBIDDEN & {node.op_type for node in model.graph.node}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(float[2, 3] x) => (int64[2] y) { y = Shape(x) }", "Shape .* computes with a shape"),
        (
            "(float[2, 3] x, int64[2] s) => (float[3, 2] y) { y = Reshape(x, s) }",
            "the shape of Reshape .* is computed",
        ),
        ("(float[B, 3] x) => (float[B, 3] y) { y = Neg(x) }", r"y of Neg has the dims \['B', 3\]"),
    ],
)
def test_what_is_known_at_run_time_only_is_refused(parse: Any, text: str, says: str) -> None:
    with pytest.raises(ExportError, match=says):
        check_static(parse(text))
