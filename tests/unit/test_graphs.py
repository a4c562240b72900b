"""The graph contract on real exports: names, dims, versions, operators, and no trace of the machine."""

from __future__ import annotations

import getpass
import re
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from gpt_onnx.errors import ExportError
from gpt_onnx.export import export_bundle
from gpt_onnx.export.graphs import PAST, SEQUENCE, TOTAL, check_frozen_length, example_sizes
from gpt_onnx.export.options import ExportOptions
from gpt_onnx.runtime import OnnxGPT

KEEP = "num_logits_to_keep"
B, S, P, T, N = "batch_size", SEQUENCE, PAST, TOTAL, 16
BARE_SHAPES: dict[str, dict[str, Any]] = {
    "padded": {},
    "grouped": {"n_kv_head": 1, "n_head": 2, "head_size": 8, "tie_embeddings": False, "head_bias": True},
}


def _dims(value: onnx.ValueInfoProto) -> tuple[str | int, ...]:
    return tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _ports(path: Path) -> dict[str, tuple[int, tuple[str | int, ...]]]:
    graph = onnx.load(str(path), load_external_data=False).graph
    return {v.name: (v.type.tensor_type.elem_type, _dims(v)) for v in (*graph.input, *graph.output)}


def _cache(prefix: str, batch: Any, heads: int, length: Any, size: int) -> dict[str, Any]:
    names = [f"{prefix}.{i}.{part}" for i in range(2) for part in ("key", "value")]
    return dict.fromkeys(names, (onnx.TensorProto.FLOAT, (batch, heads, length, size)))


def _tokens(batch: Any, length: Any, total: Any) -> dict[str, Any]:
    dims = {"input_ids": (batch, length), "attention_mask": (batch, total), "position_ids": (batch, length)}
    return {name: (onnx.TensorProto.INT64, shape) for name, shape in dims.items()}


def _logits(batch: Any, length: Any) -> dict[str, Any]:
    return {"logits": (onnx.TensorProto.FLOAT, (batch, length, 89))}


@pytest.mark.parametrize(("target", "size"), [("cpu", 16), ("portable", 12)])
def test_dynamic_graph_has_the_promised_names_and_dims(exported: Any, target: str, size: int) -> None:
    path = exported(target=target).path / "onnx/model.onnx"
    assert _ports(path) == (
        _tokens(B, S, T)
        | {KEEP: (onnx.TensorProto.INT64, (1,))}
        | _cache("past_key_values", B, 3, P, size)
        | _logits(B, S)
        | _cache("present", B, 3, T, size)
    )


@pytest.mark.parametrize(("target", "size"), [("cpu", 16), ("portable", 12)])
def test_static_graphs_have_frozen_lengths_and_any_batch(exported: Any, target: str, size: int) -> None:
    folder = exported(target=target, seq_len=N, batch_size="dynamic").path / "onnx"
    present = _cache("present", B, 3, N, size)
    assert _ports(folder / "prefill.onnx") == _tokens(B, N, N) | _logits(B, N) | present
    assert _ports(folder / "decode.onnx") == (
        _tokens(B, 1, N) | _cache("past_key_values", B, 3, N, size) | _logits(B, 1) | present
    )


def test_plain_graph_takes_ids_and_gives_logits(exported: Any) -> None:
    path = exported(kv_cache=False).path / "onnx/model.onnx"
    assert _ports(path) == {"input_ids": (onnx.TensorProto.INT64, (B, S))} | _logits(B, S)


def test_frozen_batch_leaves_the_length_dynamic(exported: Any) -> None:
    path = exported({"position": "learned"}, target="portable", batch_size=2).path / "onnx/model.onnx"
    ports = _ports(path)
    assert ports["input_ids"][1] == (2, S)
    assert ports["present.1.value"][1] == (2, 3, T, 12)


def test_inputs_and_outputs_keep_the_order_that_clients_list(exported: Any) -> None:
    graph = onnx.load(str(exported().path / "onnx/model.onnx"), load_external_data=False).graph
    cache = [f"past_key_values.{i}.{part}" for i in range(2) for part in ("key", "value")]
    present = [name.replace("past_key_values", "present") for name in cache]
    names = ["input_ids", "attention_mask", "position_ids", *cache, KEEP]
    assert [value.name for value in graph.input] == names
    assert [value.name for value in graph.output] == ["logits", *present]


@pytest.mark.parametrize(
    ("options", "domains"),
    [
        ({}, {"": 21, "com.microsoft": 1}),
        ({"target": "portable"}, {"": 21}),
        ({"seq_len": N}, {"": 21, "com.microsoft": 1}),
        ({"kv_cache": False}, {"": 21}),
    ],
)
def test_versions_and_domains_are_pinned(exported: Any, options: Any, domains: dict[str, int]) -> None:
    report = exported(**options)
    for path in report.manifest.graph.graphs.values():
        model = onnx.load(str(report.path / path), load_external_data=False)
        assert model.ir_version == 10
        assert {entry.domain: entry.version for entry in model.opset_import} == domains
        assert {node.domain for node in model.graph.node} == set(domains)
        assert not model.functions


def test_portable_graphs_pass_the_full_checker(exported: Any) -> None:
    for options in ({}, {"seq_len": N}):
        report = exported(target="portable", **options)
        for path in report.manifest.graph.graphs.values():
            onnx.checker.check_model(str(report.path / path), full_check=True)


def test_cpu_graphs_pass_the_checker_but_for_the_fused_domain(exported: Any) -> None:
    path = exported().path / "onnx/model.onnx"
    onnx.checker.check_model(str(path), skip_opset_compatibility_check=True)


@pytest.mark.parametrize("options", [{}, {"target": "portable"}, {"seq_len": N}, {"kv_cache": False}])
def test_no_file_tells_of_the_machine_that_exported(exported: Any, options: Any) -> None:
    report = exported(**options)
    root = str(Path(__file__).resolve().parents[2])
    secrets = [root, str(report.path), str(Path.home()), "site-packages", ".py", 'File "', "Traceback"]
    secrets += [word for word in (getpass.getuser(), socket.gethostname()) if len(word) > 4]
    for path in (path for path in report.path.rglob("*") if path.is_file()):
        text = path.read_bytes().decode("latin-1")
        found = [secret for secret in secrets if secret in text]
        assert not found, f"{path.name}: {found}"


def test_every_dim_has_a_promised_name(exported: Any) -> None:
    """The tracer calls what it cannot name s7, u0 or the like."""
    for options in ({}, {"target": "portable"}, {"kv_cache": False}):
        graph = onnx.load(str(exported(**options).path / "onnx/model.onnx"), load_external_data=False).graph
        values = (*graph.input, *graph.output, *graph.value_info)
        words = {
            word for value in values for dim in _dims(value) for word in re.findall(r"[a-z]\w*", str(dim))
        }
        assert words <= {B, S, P}


def test_a_layer_of_the_cpu_graph_has_no_needless_node(exported: Any) -> None:
    def count(**changes: Any) -> Counter[str]:
        path = exported(changes | {"head_size": 8}).path / "onnx/model.onnx"
        return Counter(node.op_type for node in onnx.load(str(path), load_external_data=False).graph.node)

    one, two = count(n_layer=1), count(n_layer=2)
    assert two - one == Counter(
        {"SkipLayerNormalization": 2, "MatMul": 4, "Add": 2, "Gelu": 1, "GroupQueryAttention": 1}
    )


def test_padding_a_head_costs_a_pad_a_slice_and_four_reshapes_a_layer(exported: Any) -> None:
    def count(size: int) -> Counter[str]:
        path = exported({"head_size": size}).path / "onnx/model.onnx"
        return Counter(node.op_type for node in onnx.load(str(path), load_external_data=False).graph.node)

    assert count(12) - count(8) == Counter({"Pad": 2, "Slice": 2, "Reshape": 8})


@pytest.mark.parametrize("options", [{}, {"target": "portable"}, {"seq_len": N}, {"kv_cache": False}])
def test_no_trace_is_left_of_what_the_tracer_needs(exported: Any, options: Any) -> None:
    report = exported(**options)
    needless = {"Identity", "CastLike", "Constant", "Expand", "ScatterND", "Dropout", "IsNaN"}
    for path in report.manifest.graph.graphs.values():
        ops = Counter(
            node.op_type for node in onnx.load(str(report.path / path), load_external_data=False).graph.node
        )
        assert not needless & set(ops), path


def _feeds(batch: int, length: int, past: int, size: int, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    feeds = {
        "input_ids": generator.integers(0, 89, (batch, length)),
        "attention_mask": np.ones((batch, past + length), np.int64),
        "position_ids": np.tile(np.arange(past, past + length), (batch, 1)),
    }
    for name in _cache("past_key_values", B, 3, P, size):
        feeds[name] = generator.standard_normal((batch, 3, past, size)).astype(np.float32)
    return feeds


@pytest.mark.parametrize(("target", "size"), [("cpu", 16), ("portable", 12)])
@pytest.mark.parametrize("keep", [1, 2, 5, 99])
def test_keeping_logits_gives_the_last_rows_of_all(
    exported: Any, run_ort: Any, target: str, size: int, keep: int
) -> None:
    path = exported(target=target).path / "onnx/model.onnx"
    feeds = _feeds(2, 5, 0, size)
    whole = run_ort(path, feeds)["logits"]
    kept = run_ort(path, feeds | {KEEP: np.array([keep])})["logits"]
    assert kept.shape == (2, min(keep, 5), 89)
    np.testing.assert_allclose(kept, whole[:, -keep:], rtol=1e-5, atol=1e-5)


def test_keeping_logits_works_by_io_binding(exported: Any) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    path = exported().path / "onnx/model.onnx"
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = _feeds(1, 5, 0, 16)
    whole = session.run(["logits"], feeds)[0]
    binding = session.io_binding()
    for name, array in (
        feeds | {KEEP: np.array([1])}
    ).items():  # by OrtValue: bind_cpu_input knows no defaults
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for output in session.get_outputs():
        binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    kept = binding.copy_outputs_to_cpu()[0]
    assert kept.shape == (1, 1, 89)
    np.testing.assert_allclose(kept, whole[:, -1:], rtol=1e-5, atol=1e-5)


def test_portable_graph_runs_on_the_reference_evaluator(exported: Any, make_gpt: Any) -> None:
    """An oracle that shares no code with ONNX Runtime: prefill, then one token, against the model."""
    evaluator: Any = ReferenceEvaluator(str(exported(target="portable").path / "onnx/model.onnx"))
    ids = np.random.default_rng(1).integers(0, 89, (2, 6))
    first = _feeds(2, 5, 0, 12) | {"input_ids": ids[:, :5]}
    logits, *present = evaluator.run(None, first | {KEEP: np.array([0])})
    names = list(_cache("past_key_values", B, 3, P, 12))
    step = _feeds(2, 1, 5, 12) | dict(zip(names, present, strict=True)) | {"input_ids": ids[:, 5:]}
    last = evaluator.run(["logits"], step | {KEEP: np.array([1])})[0]
    with torch.no_grad():
        wanted = make_gpt()(torch.from_numpy(ids))[0].numpy()
    np.testing.assert_allclose(logits, wanted[:, :5], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(last, wanted[:, 5:], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("shape", BARE_SHAPES)
@pytest.mark.parametrize("target", ["cpu", "portable"])
def test_graph_computes_what_the_model_computes(
    exported: Any, run_ort: Any, make_gpt: Any, target: str, shape: str
) -> None:
    changes = BARE_SHAPES[shape]
    gpt, report = make_gpt(**changes), exported(changes, target=target)
    model = report.manifest.model
    ids = np.random.default_rng(2).integers(0, 89, (3, 9))
    feeds = {key: value for key, value in _feeds(3, 9, 0, 1).items() if not key.startswith("past")}
    for name in _cache("past_key_values", B, 3, P, 1):
        feeds[name] = np.zeros((3, model.n_kv_head, 0, model.cache_head_size), np.float32)
    found = run_ort(report.path / "onnx/model.onnx", feeds | {"input_ids": ids})
    with torch.no_grad():
        logits, cache = gpt(torch.from_numpy(ids))
    np.testing.assert_allclose(found["logits"], logits.numpy(), rtol=1e-4, atol=3e-5)
    keys = found["present.1.key"]
    np.testing.assert_allclose(keys[..., : model.head_size], cache[1][0].numpy(), rtol=1e-4, atol=3e-5)
    assert not keys[..., model.head_size :].any()  # the padding of a head is zeros


def test_example_sizes_are_found_nowhere_in_the_model() -> None:
    sizes = example_sizes({61, 97, 96, 12}, None)
    assert not {61, 97, 96, 12} & set(sizes.values())
    assert sizes[TOTAL] == sizes[PAST] + sizes[SEQUENCE]
    assert min(sizes.values()) >= 2


def test_example_of_a_short_table_fits_into_it() -> None:
    assert example_sizes({5, 32}, 5)[SEQUENCE] < 5


def test_example_sizes_that_cannot_be_chosen_are_told() -> None:
    with pytest.raises(ExportError, match=r"no example length from 2 to 3 .* freeze it with --seq-len 3"):
        example_sizes({2, 3}, 3)


def test_a_frozen_length_needs_no_example() -> None:
    assert example_sizes({2, 3, 61}, 3, frozen=3) == {"batch_size": 67}
    assert example_sizes({183}, 3, frozen=3) == {"batch_size": 67}  # 183 is 61 times 3
    with pytest.raises(ExportError, match="no example batch differs"):
        example_sizes(set(range(200)), None, frozen=8)


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"kv_cache": False}, {"seq_len": 0}, {"kv_cache": False, "seq_len": 0}]
)
def test_a_table_of_one_or_two_positions_is_computed(
    make_gpt: Any, tmp_path: Path, target: str, length: int, options: dict[str, Any]
) -> None:
    gpt = make_gpt(position="learned", context_length=length, n_layer=1)
    chosen = options | ({"seq_len": length} if "seq_len" in options else {})
    report = export_bundle(gpt, tmp_path / "b", target=target, check="none", **chosen)
    assert report.manifest.model.position_limit == length
    ids = np.array([[4, 7][:length]])
    with torch.no_grad():
        wanted = gpt(torch.from_numpy(ids))[0].numpy()
    found = OnnxGPT.load(tmp_path / "b").logits(ids)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=3e-5)


def test_a_length_beyond_the_table_is_refused() -> None:
    check_frozen_length(ExportOptions(seq_len=64), 64)
    check_frozen_length(ExportOptions(seq_len=65), None)
    with pytest.raises(ExportError, match="--seq-len is 65 and the model's positions end at 64"):
        check_frozen_length(ExportOptions(seq_len=65), 64)


def test_a_frozen_size_may_equal_the_first_choice_of_an_example(exported: Any) -> None:
    report = exported({"n_layer": 1}, kv_cache=False, batch_size=97)
    assert report.manifest.graph.batch_size == 97
