"""``read_graph`` reads what the onnx package reads, and answers damage with a BundleError."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from gpt_onnx.bundle import GraphSummary, parse_graph, read_graph
from gpt_onnx.bundle._summary import DTYPES
from gpt_onnx.bundle._wire import MAX_FIELDS, Reader, read_varint
from gpt_onnx.errors import BundleError


def _dims(port: Any) -> tuple[int | str, ...]:
    dims = port.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims)


def _agrees_with_onnx(summary: GraphSummary, model: Any) -> None:
    """Compare everything in a summary with what the onnx package says."""
    graph = model.graph
    assert summary.ir_version == model.ir_version
    assert summary.opsets == {entry.domain: entry.version for entry in model.opset_import}
    for values, ports in ((summary.inputs, graph.input), (summary.outputs, graph.output)):
        assert [value.name for value in values] == [port.name for port in ports]
        assert [value.dims for value in values] == [_dims(port) for port in ports]
        assert [value.elem_type for value in values] == [
            np.dtype(helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)).name for port in ports
        ]
    assert summary.op_counts == Counter((node.domain, node.op_type) for node in graph.node)
    for node, expected in zip(summary.nodes, graph.node, strict=True):
        assert (node.name, node.inputs, node.outputs) == (
            expected.name,
            tuple(expected.input),
            tuple(expected.output),
        )
        assert node.has_subgraph == any(a.HasField("g") or a.graphs for a in expected.attribute)
    for weight, tensor in zip(summary.initializers, graph.initializer, strict=True):
        assert (weight.name, weight.dims) == (tensor.name, tuple(tensor.dims))
        if not tensor.external_data:
            array = numpy_helper.to_array(tensor)
            assert (weight.bytes, weight.dtype) == (array.nbytes, array.dtype.name)
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if weight.external:
            found = (weight.external.location, str(weight.external.offset), str(weight.external.length))
            assert found == (entries["location"], entries["offset"], entries["length"])
        else:
            assert not entries


@pytest.mark.parametrize(
    ("role", "attention"),
    [("model", "decomposed"), ("model", "gqa"), ("decode", "decomposed"), ("plain", "")],
)
def test_agrees_with_onnx_on_bundle_graphs(make_model: Callable[..., Any], role: str, attention: str) -> None:
    model = make_model(role, attention)
    _agrees_with_onnx(parse_graph(model.SerializeToString()), model)


def _every_feature() -> Any:
    """Subgraphs, functions, unpacked and typed data, scalars, strings, missing shapes, unicode, metadata."""
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["é"])],
        "branch",
        [],
        [helper.make_tensor_value_info("é", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="如果"),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.eye(3, dtype=np.float16))),
        helper.make_node("Clip", ["y", "", "k"], ["z"], domain="ai.onnx"),
        helper.make_node(
            "Own", ["z"], ["out", "", "more"], domain="own", numbers=[1, 2, -3], words=["a", "b"], ratio=0.5
        ),
    ]
    weights = [
        helper.make_tensor("scalar", TensorProto.INT64, [], [-5]),
        helper.make_tensor("typed", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0]),
        TensorProto(name="text", data_type=TensorProto.STRING, dims=[2], string_data=[b"ab", b"c"]),
        helper.make_tensor("empty", TensorProto.BOOL, [0, 7], []),
        numpy_helper.from_array(np.arange(6, dtype=np.uint16).reshape(3, 2), "raw"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["batch", None, 3]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("out", TensorProto.DOUBLE, [1])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights, doc_string="doc")
    identity = [helper.make_node("Identity", ["x"], ["y"])]
    function = helper.make_function("own", "Own", ["x"], ["y"], identity, [helper.make_opsetid("", 21)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 3)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)
    helper.set_model_props(model, {"key": "value"})
    return model


def test_agrees_with_onnx_on_every_feature() -> None:
    model = _every_feature()
    summary = parse_graph(model.SerializeToString())
    assert summary.functions == 1
    assert summary.nodes[2].domain == ""  # "ai.onnx" is the standard domain's other name
    assert [weight.dtype for weight in summary.initializers] == [
        "int64",
        "float32",
        "string",
        "bool",
        "uint16",
    ]
    model.graph.node[2].domain = ""
    del model.graph.initializer[2:4]  # numpy has no fixed size for strings
    _agrees_with_onnx(parse_graph(model.SerializeToString()), model)


def test_agrees_with_onnx_on_a_traced_module(tmp_path: Path) -> None:
    import torch

    module = torch.nn.Sequential(
        torch.nn.Embedding(7, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 7)
    ).eval()
    path = tmp_path / "traced.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(2, 3, dtype=torch.long),), path, dynamo=True, verbose=False)
    _agrees_with_onnx(read_graph(path), onnx.load(path, load_external_data=False))


def test_element_types_are_those_of_onnx() -> None:
    for number, (name, bits) in DTYPES.items():
        dtype = helper.tensor_dtype_to_np_dtype(number)
        if name != "string":
            named = np.dtype(dtype)
            assert named.name.replace("_", "").startswith(name.replace("_", "")[:8])
            assert bits == (named.itemsize * 8 if bits >= 8 else bits)
    assert set(DTYPES) == set(range(1, 27))  # 27 and 28, the six-bit floats, are refused


def test_four_bit_weights_take_half_a_byte() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[5], raw_data=b"\0" * 3)
    model = helper.make_model(helper.make_graph([], "g", [], [], [tensor]))
    assert parse_graph(model.SerializeToString()).initializers[0].bytes == math.ceil(5 / 2)


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_varints_come_back(value: int) -> None:
    content, rest = bytearray(), value
    while rest >= 0x80:
        content.append(rest & 0x7F | 0x80)
        rest >>= 7
    content.append(rest)
    assert read_varint(memoryview(bytes(content)), 0) == (value, len(content))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_fields_or_an_error(content: bytes) -> None:
    try:
        fields = list(Reader().fields(memoryview(content)))
    except BundleError:
        return
    assert all(1 <= field.number < 2**29 for field in fields)


def _read_or_refuse(content: bytes) -> None:
    said = ""
    try:
        parse_graph(content)
    except BundleError as exc:
        said = str(exc)
    assert "\n" not in said
    assert len(said) < 1000


SAMPLE = _every_feature().SerializeToString()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 7)), min_size=1, max_size=4))
def test_flipped_bits_are_a_summary_or_an_error(flips: list[tuple[int, int]]) -> None:
    content = bytearray(SAMPLE)
    for index, bit in flips:
        content[index] ^= 1 << bit
    _read_or_refuse(bytes(content))


def test_every_truncation_is_a_summary_or_an_error() -> None:
    for size in range(len(SAMPLE)):
        _read_or_refuse(SAMPLE[:size])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(SAMPLE)), st.binary(max_size=40), st.integers(0, 40))
def test_spliced_bytes_are_a_summary_or_an_error(start: int, inserted: bytes, dropped: int) -> None:
    _read_or_refuse(SAMPLE[:start] + inserted + SAMPLE[start + dropped :])


def _tag(number: int, content: bytes) -> bytes:
    size, prefix = len(content), bytearray()
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*prefix, size]) + content


IR_VERSION = b"\x08\x0a"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no IR version or no graph"),
        (IR_VERSION, "no IR version or no graph"),
        (b"not an onnx file at all", "field"),
        (IR_VERSION + _tag(7, b"") * 2, "field 7 occurs 2 times"),
        (IR_VERSION + b"\x08\x0a" + _tag(7, b""), "field 1 occurs 2 times"),
        (IR_VERSION + b"\x38\x01", "field 7 holds an integer"),
        (IR_VERSION + _tag(7, _tag(1, b"")), "node 0: it has no operator"),
        (IR_VERSION + _tag(7, _tag(1, _tag(4, b"\xff"))), "node 0: field 4 is not UTF-8"),
        (IR_VERSION + _tag(7, _tag(5, _tag(1, b"\x01" * 33) + b"\x10\x01")), "at most 32"),
        (IR_VERSION + _tag(7, _tag(5, _tag(1, b"\xff" * 9 + b"\x01") + b"\x10\x01")), "none negative"),
        (IR_VERSION + _tag(7, _tag(5, b"\x10\x63")), "element type has the number 99"),
        (IR_VERSION + _tag(7, _tag(5, b"\x10\x01\x70\x01")), "it must say location, offset, length once"),
        (IR_VERSION + b"\x3f", "wire type 7"),
        (IR_VERSION + b"\x3b", "wire type 3"),
        (IR_VERSION + b"\x00\x00", "number 0"),
        (IR_VERSION + b"\x3a\xff\xff\xff\xff\x7f", "is cut off"),
        (IR_VERSION + b"\x3a" + b"\xff" * 11, "more than 64 bits"),
    ],
)
def test_a_damaged_file_is_named_with_its_fault(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(BundleError) as caught:
        read_graph(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_graph_of_millions_of_fields_is_given_up() -> None:
    padding = b"\x50\x00" * (MAX_FIELDS + 10)  # field 10 of the graph, again and again
    with pytest.raises(BundleError, match="more than 600000 fields"):
        parse_graph(IR_VERSION + _tag(7, padding))


def test_a_part_of_very_many_fields_is_given_up() -> None:
    with pytest.raises(BundleError, match="more than 100000 fields"):
        parse_graph(IR_VERSION + _tag(7, _tag(1, b"\x0a\x00" * 100_010)))


def test_huge_dims_cost_nothing() -> None:
    dims = _tag(1, (b"\xff" * 8 + b"\x7f") * 32)
    with pytest.raises(BundleError, match="it has 1 bytes"):
        parse_graph(IR_VERSION + _tag(7, _tag(5, dims + b"\x10\x01" + _tag(9, b"x"))))
