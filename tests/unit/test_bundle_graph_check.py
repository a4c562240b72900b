"""``check_graph`` accepts every layout of the contract and refuses one fault at a time."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt_onnx.bundle import (
    Bundle,
    Manifest,
    check_graph,
    check_summaries,
    open_bundle,
    parse_graph,
    seal,
)
from gpt_onnx.errors import BundleError

BundleMaker = Callable[..., Path]
Edit = Callable[[Any], object]


@pytest.fixture
def hostile(make_bundle: BundleMaker) -> Bundle:
    """A bundle whose maker also makes the hashes fit."""
    return open_bundle(make_bundle(attention="gqa"))


@pytest.mark.parametrize(
    ("layout", "attention"),
    [("dynamic", "decomposed"), ("dynamic", "gqa"), ("static", "decomposed"), ("plain", "decomposed")],
)
def test_a_graph_of_the_contract_passes(make_bundle: BundleMaker, layout: str, attention: str) -> None:
    check_graph(open_bundle(make_bundle(layout=layout, attention=attention)))


def _weight(model: Any, name: str) -> Any:
    return next(tensor for tensor in model.graph.initializer if tensor.name == name)


def _external(name: str, key: str, value: object) -> Edit:
    def edit(model: Any) -> None:
        next(entry for entry in _weight(model, name).external_data if entry.key == key).value = str(value)

    return edit


def _rename_dim(name: str, axis: int, value: object) -> Edit:
    def edit(model: Any) -> None:
        ports = [*model.graph.input, *model.graph.output]
        dim = next(port for port in ports if port.name == name).type.tensor_type.shape.dim[axis]
        setattr(dim, "dim_value" if isinstance(value, int) else "dim_param", value)

    return edit


def _add_node(op: str, domain: str = "", **attributes: Any) -> Edit:
    from onnx import helper

    return lambda model: model.graph.node.append(
        helper.make_node(op, ["hidden"], ["spare"], name="spare", domain=domain, **attributes)
    )


def _if_node(model: Any) -> None:
    from onnx import TensorProto, helper

    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1])
    node = helper.make_node("Identity", ["hidden"], ["inner"])
    branch = helper.make_graph([node], "branch", [], [output])
    model.graph.node.append(
        helper.make_node("If", ["hidden"], ["spare"], then_branch=branch, else_branch=branch)
    )


def _function(model: Any) -> None:
    from onnx import helper

    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    model.functions.append(
        helper.make_function("own", "F", ["x"], ["y"], nodes, [helper.make_opsetid("", 21)])
    )


def _foreign_location(model: Any) -> None:
    _external("wte.weight", "location", "../secret")(model)


def _drop_default(model: Any) -> None:
    model.graph.initializer.remove(_weight(model, "num_logits_to_keep"))


def _default_for_ids(model: Any) -> None:
    _weight(model, "num_logits_to_keep").name = "input_ids"


def _float_ids(model: Any) -> None:
    model.graph.input[0].type.tensor_type.elem_type = 6


def _extra_input(model: Any) -> None:
    model.graph.input.add().CopyFrom(model.graph.input[0])
    model.graph.input[-1].name = "token_type_ids"


def _repeat_input(model: Any) -> None:
    model.graph.input.add().CopyFrom(model.graph.input[0])


def _drop_output(model: Any) -> None:
    del model.graph.output[-1]


def _reversed_nodes(model: Any) -> None:
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _made_twice(model: Any) -> None:
    model.graph.node.add().CopyFrom(model.graph.node[0])


def _unmade_output(model: Any) -> None:
    del model.graph.node[1]


def _opset(version: int, domain: str = "") -> Edit:
    def edit(model: Any) -> None:
        entry = model.opset_import[0] if domain == "" else model.opset_import.add()
        entry.domain, entry.version = domain, version

    return edit


def _sparse(model: Any) -> None:
    model.graph.sparse_initializer.add()


def _same_name(model: Any) -> None:
    _weight(model, "heads_shape").name = "num_logits_to_keep"


FAULTS: dict[str, tuple[Edit, str]] = {
    "unknown operator": (_add_node("NonMaxSuppression"), "NonMaxSuppression"),
    "unknown domain": (_add_node("Sampling", "com.microsoft"), "com.microsoft::Sampling"),
    "foreign domain imported": (_opset(1, "evil.ops"), "evil.ops"),
    "subgraph": (_if_node, "holds a graph of its own"),
    "function": (_function, "defines 1 functions"),
    "sparse weights": (_sparse, "sparse weights"),
    "other opset": (_opset(20), "its opset is 20; the manifest says 21"),
    "other IR version": (lambda model: setattr(model, "ir_version", 9), "its IR version is 9"),
    "location elsewhere": (_foreign_location, "'../secret'"),
    "offset into another weight": (_external("lm_head.weight", "offset", 64), "share the bytes"),
    "offset past the end": (_external("lm_head.weight", "offset", 1 << 40), "the file has"),
    "same bytes twice": (_external("lm_head.weight", "offset", 0), "same bytes as another"),
    "wrong length": (_external("lm_head.weight", "length", 8), "8 bytes outside of the graph"),
    "negative offset": (_external("lm_head.weight", "offset", -1), "'-1'"),
    "no default": (_drop_default, "num_logits_to_keep has no default"),
    "default for another input": (_default_for_ids, "'input_ids' has a default"),
    "two weights of a name": (_same_name, "same name"),
    "float ids": (_float_ids, "input input_ids is int32; it must be int64"),
    "extra input": (_extra_input, "token_type_ids"),
    "input twice": (_repeat_input, "twice"),
    "missing output": (_drop_output, "lacks the output 'present.1.value'"),
    "renamed dim": (_rename_dim("input_ids", 1, "seq"), "input_ids has the dims"),
    "frozen dim": (_rename_dim("logits", 0, 1), "logits has the dims"),
    "zero dim": (_rename_dim("logits", 2, 0), "must be positive"),
    "other vocabulary": (_rename_dim("logits", 2, 12), "must be ['batch_size', 'sequence_length', 11]"),
    "other head size": (_rename_dim("past_key_values.1.key", 3, 16), "past_key_values.1.key has the dims"),
    "used before made": (_reversed_nodes, "which nothing before it makes"),
    "made twice": (_made_twice, "there already"),
    "output never made": (_unmade_output, "nothing makes the output 'logits'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(make_bundle: BundleMaker, fault: str) -> None:
    edit, said = FAULTS[fault]
    bundle = open_bundle(make_bundle(edit=edit))
    with pytest.raises(BundleError) as caught:
        check_graph(bundle)
    assert said in str(caught.value)
    assert str(bundle.path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_portable_takes_no_operator_of_another_domain(make_bundle: BundleMaker) -> None:
    with pytest.raises(BundleError, match=r"imports operators of 'com\.microsoft'"):
        check_graph(open_bundle(make_bundle(edit=_opset(1, "com.microsoft"))))


def test_gqa_has_one_fused_attention_a_layer(make_bundle: BundleMaker) -> None:
    def edit(model: Any) -> None:
        fused = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
        copy = model.graph.node.add()
        copy.CopyFrom(fused[0])
        del copy.output[:]
        copy.output.extend(["a", "b", "c"])

    with pytest.raises(BundleError, match="3 GroupQueryAttention; the manifest says 2 layers"):
        check_graph(open_bundle(make_bundle(attention="gqa", edit=edit)))


def test_fused_attention_is_no_decomposed_one_whatever_the_manifest_says(make_bundle: BundleMaker) -> None:
    path = make_bundle(attention="gqa")
    manifest = open_bundle(path).manifest
    decomposed = dataclasses.replace(manifest.graph, attention="decomposed")
    biased = dataclasses.replace(manifest.model, position="alibi")
    seal(path, dataclasses.replace(manifest, graph=decomposed, model=biased))
    with pytest.raises(BundleError, match="2 GroupQueryAttention; the manifest says that attention is decom"):
        check_graph(open_bundle(path))


def test_bytes_that_belong_to_no_weight_are_refused(make_bundle: BundleMaker) -> None:
    data = open_bundle(make_bundle()).file("onnx/model.onnx_data").read_bytes()
    dirty = bytearray(data)
    dirty[4000] = 1
    for name, content, said in (
        ("tail", data + b"\0", "last 1 bytes"),
        ("gap", bytes(dirty), "are not zero"),
    ):
        with pytest.raises(BundleError, match=said):
            check_graph(open_bundle(make_bundle(name, data=content)))


def test_a_gap_beyond_alignment_is_refused(make_bundle: BundleMaker) -> None:
    path = make_bundle("first")
    head = (path / "onnx/model.onnx_data").read_bytes()[4096:]
    offset = 1 << 17
    content = (path / "onnx/model.onnx_data").read_bytes()[:4096].ljust(offset, b"\0") + head
    with pytest.raises(BundleError, match="fewer than 65536 may"):
        check_graph(
            open_bundle(make_bundle(edit=_external("lm_head.weight", "offset", offset), data=content))
        )


def test_static_graphs_cover_the_data_together(make_bundle: BundleMaker) -> None:
    def inline_the_head(model: Any) -> None:
        if len(model.graph.input) == 3:  # prefill: keeps a copy of its own, decode still has it outside
            from onnx import numpy_helper

            head = _weight(model, "lm_head.weight")
            values = (
                numpy_helper.to_array(_weight(model, "heads_shape"))
                .repeat(44)
                .astype("float32")
                .reshape(16, 11)
            )
            head.CopyFrom(numpy_helper.from_array(values, "lm_head.weight"))

    check_graph(open_bundle(make_bundle(layout="static", edit=inline_the_head)))


def test_a_foreign_graph_may_use_any_standard_operator(make_bundle: BundleMaker) -> None:
    path = make_bundle(layout="plain", attention="traced", edit=_add_node("NonMaxSuppression"))
    check_graph(open_bundle(path))
    with pytest.raises(BundleError, match="holds a graph of its own"):
        check_graph(open_bundle(make_bundle("other", layout="plain", attention="traced", edit=_if_node)))


@pytest.mark.parametrize("dims", [("batch_size", 1, 11), ("batch_size", 11)])
def test_a_foreign_graph_may_give_the_last_position_alone(
    make_bundle: BundleMaker, dims: tuple[str | int, ...]
) -> None:
    from onnx import TensorProto, helper

    def edit(model: Any) -> None:
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, list(dims)))

    check_graph(open_bundle(make_bundle(layout="plain", attention="traced", edit=edit)))
    with pytest.raises(BundleError, match="logits has the dims"):
        check_graph(open_bundle(make_bundle("ours", layout="plain", edit=edit)))


def test_frozen_batch_of_a_dynamic_graph(
    make_bundle: BundleMaker, make_manifest: Callable[..., Manifest]
) -> None:
    def freeze(model: Any) -> None:
        for port in [*model.graph.input, *model.graph.output]:
            if port.name != "num_logits_to_keep":
                _rename_dim(port.name, 0, 3)(model)

    graph = dataclasses.replace(make_manifest().graph, batch_size=3)
    check_graph(open_bundle(make_bundle(edit=freeze, graph=graph)))


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=3))
def test_a_sealed_graph_with_flipped_bits_passes_or_is_refused(
    hostile: Bundle, flips: list[tuple[float, int]]
) -> None:
    content = bytearray(hostile.graph_path().read_bytes())
    for place, bit in flips:
        content[int(place * len(content))] ^= 1 << bit
    with contextlib.suppress(BundleError):
        check_summaries(hostile, {"model": parse_graph(bytes(content))})
