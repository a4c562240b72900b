"""The gate of bundles in float16 accepts right ones of every kind, and is tested by mutation.

What is wrong with a stored weight is seen beside the source's; what is wrong with the graph is seen with
float32 in every place of float16, where float16 itself would hide it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gpt_onnx.bundle import open_bundle
from gpt_onnx.export.gate import GateReport, reference_for, run_gate
from gpt_onnx.export.gpt_source import GptSource
from gpt_onnx.model import GPT
from tests.parity.test_gate_mutation import Mutant

PROJECTION = "h.0.attn.c_proj.weight"
KINDS: dict[str, dict[str, Any]] = {
    "gpt2": {"position": "learned", "activation": "gelu_tanh"},
    "llama": {
        "position": "rotary",
        "norm": "rmsnorm",
        "activation": "swiglu",
        "bias": False,
        "n_kv_head": 2,
        "tie_embeddings": False,
    },
    "alibi": {"position": "alibi"},
    "sinusoidal": {"n_kv_head": 1},
}
WAYS: dict[str, dict[str, Any]] = {
    "portable": {"target": "portable"},
    "web": {"target": "web"},
    "opset 17": {"target": "portable", "opset": 17},
    "static": {"target": "portable", "seq_len": 24},
    "plain": {"target": "portable", "kv_cache": False},
}
CASES = [
    ("gpt2", "portable"),
    ("gpt2", "web"),
    ("gpt2", "static"),
    ("llama", "portable"),
    ("llama", "web"),
    ("alibi", "web"),
    ("sinusoidal", "opset 17"),
    ("sinusoidal", "plain"),
]


class HalfMutant(Mutant):
    """A copy of a bundle in float16 whose graph and weights can be edited."""

    def change(self, name: str, edit: Callable[[np.ndarray], None]) -> None:
        """Edit an initializer in place, in the graph or in the data file."""
        tensor = next(tensor for tensor in self.model.graph.initializer if tensor.name == name)
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if tensor.raw_data:
            values = np.frombuffer(tensor.raw_data, kind).reshape(tensor.dims).copy()
            edit(values)
            tensor.raw_data = values.tobytes()
            return
        place = {entry.key: entry.value for entry in tensor.external_data}
        size = int(np.prod(tensor.dims))
        edit(np.frombuffer(self.data, kind, size, int(place["offset"])).reshape(tensor.dims))


Edit = Callable[[HalfMutant], None]


def low_bit_of_a_weight(mutant: HalfMutant) -> None:
    def edit(weight: np.ndarray) -> None:
        weight.view(np.uint16)[3, 5] ^= 1

    mutant.change(PROJECTION, edit)


def truncated_weight(mutant: HalfMutant) -> None:
    """As a conversion that does not round to nearest leaves it."""

    def edit(weight: np.ndarray) -> None:
        weight[...] = np.nextafter(weight, np.float16(0))

    mutant.change("wte.weight", edit)


def other_norm(mutant: HalfMutant) -> None:
    def edit(weight: np.ndarray) -> None:
        weight.view(np.uint32)[5] ^= 1

    mutant.change("ln_f.weight", edit)


WEIGHT_FAULTS: dict[str, tuple[Edit, str]] = {
    "the lowest bit of one number": (low_bit_of_a_weight, PROJECTION),
    "a table that was cut and not rounded": (truncated_weight, "wte.weight"),
    "the lowest bit of a norm's weight": (other_norm, "ln_f.weight"),
}
"""Fault to edit, and the weight that the report must name."""


def dropped_bias(mutant: HalfMutant) -> None:
    node = mutant.reader("h.0.attn.c_proj.bias")
    index = list(node.input).index("h.0.attn.c_proj.bias")
    node.input[index] = mutant.constant("no_bias", np.zeros(32, np.float32))


def other_epsilon(mutant: HalfMutant) -> None:
    for node in mutant.model.graph.node:
        if node.op_type.endswith("LayerNormalization"):
            mutant.attribute(node, "epsilon").f = 1e-6


def other_scale(mutant: HalfMutant) -> None:
    """1e-5 of it, which no float16 can show."""
    assert mutant.change_scalars(lambda value: 0.3 < value < 0.4, lambda value: value * (1 + 1e-5))


def sees_one_token_ahead(mutant: HalfMutant) -> None:
    node = mutant.nodes("LessOrEqual")[0]
    one = mutant.constant("one", np.array(1, np.int64))
    mutant.insert(helper.make_node("Add", [node.input[1], one], ["ahead"]), before=node)
    node.input[1] = "ahead"


GRAPH_FAULTS: dict[str, Edit] = {
    "a dropped bias": dropped_bias,
    "an epsilon of 1e-6 for 1e-5": other_epsilon,
    "a mask that sees one token ahead": sees_one_token_ahead,
}


def _source(make_gpt: Callable[..., GPT], kind: str = "gpt2") -> GptSource:
    return GptSource.of_model(make_gpt(**KINDS[kind]))


@pytest.fixture(scope="module")
def exported(make_gpt: Callable[..., GPT], export_unchecked: Callable[..., Path]) -> Callable[..., Path]:
    made: dict[tuple[str, str], Path] = {}

    def export(kind: str = "gpt2", way: str = "portable") -> Path:
        if (kind, way) not in made:
            made[kind, way] = export_unchecked(make_gpt(**KINDS[kind]), precision="fp16", **WAYS[way])
        return made[kind, way]

    return export


@pytest.fixture
def gate(
    exported: Callable[..., Path], make_gpt: Callable[..., GPT], tmp_path: Path
) -> Callable[[Edit], GateReport]:
    """Gates a portable bundle after an edit."""

    def run(edit: Edit) -> GateReport:
        mutant = HalfMutant(exported(), tmp_path / "mutant")
        edit(mutant)
        folder = mutant.saved()
        return run_gate(folder, reference_for(_source(make_gpt), folder), level="quick", threads=1)

    return run


Gate = Callable[[Edit], GateReport]


def failed(report: GateReport) -> set[str]:
    return {outcome.group for outcome in report.outcomes if not outcome.passed}


@pytest.mark.parametrize(("kind", "way"), CASES)
def test_a_right_bundle_is_accepted(
    exported: Callable[..., Path], make_gpt: Callable[..., GPT], kind: str, way: str
) -> None:
    folder = exported(kind, way)
    report = run_gate(folder, reference_for(_source(make_gpt, kind), folder), level="quick", threads=1)
    assert report.passed, report.summary()
    assert report.cost == "float16 in products and the cache"
    assert {"weights", "exact products"} <= {outcome.group for outcome in report.outcomes}


@pytest.mark.parametrize("fault", WEIGHT_FAULTS)
def test_a_stored_weight_that_is_wrong_is_refused_by_name(gate: Gate, fault: str) -> None:
    edit, name = WEIGHT_FAULTS[fault]
    report = gate(edit)
    assert "weights" in failed(report)
    assert any(name in (outcome.finding.fault or "") for outcome in report.outcomes)


@pytest.mark.parametrize("fault", GRAPH_FAULTS)
def test_a_graph_that_computes_something_else_is_refused(gate: Gate, fault: str) -> None:
    report = gate(GRAPH_FAULTS[fault])
    assert "exact products" in failed(report), report.summary()


def test_a_scale_that_is_off_by_too_little_for_float16_is_refused_all_the_same(gate: Gate) -> None:
    assert failed(gate(other_scale)) == {"exact products"}


def test_another_model_s_weights_are_refused(
    exported: Callable[..., Path], make_gpt: Callable[..., GPT]
) -> None:
    other = GptSource.of_model(make_gpt(seed=1, **KINDS["gpt2"]))
    report = run_gate(exported(), reference_for(other, exported()), level="quick", threads=1)
    assert "weights" in failed(report)


@pytest.mark.parametrize("way", ["portable", "web"])
def test_what_is_float16_and_what_is_not(exported: Callable[..., Path], way: str) -> None:
    folder = exported("gpt2", way)
    model = onnx.load(folder / "onnx/model.onnx", load_external_data=False)
    ports = {port.name: port.type.tensor_type.elem_type for port in (*model.graph.input, *model.graph.output)}
    cache = {kind for name, kind in ports.items() if name.startswith(("past_", "present."))}
    assert (ports["logits"], cache) == (TensorProto.FLOAT, {TensorProto.FLOAT16})
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    names = [name for name in open_names(folder) if name in stored]
    matrices = {stored[name] for name in names if name.endswith("weight") and ".ln_" not in f".{name}"}
    assert matrices == {TensorProto.FLOAT16}
    assert {stored[name] for name in names if name.endswith("bias")} == {TensorProto.FLOAT}
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    for node in model.graph.node:
        if node.op_type in ("Softmax", "Sin") or node.op_type.endswith("LayerNormalization"):
            assert kinds.get(node.output[0], TensorProto.FLOAT) == TensorProto.FLOAT, node.op_type
        if node.op_type in ("MatMul", "Gemm", "GroupQueryAttention"):
            assert kinds.get(node.output[0], TensorProto.FLOAT16) == TensorProto.FLOAT16, node.op_type


def open_names(folder: Path) -> list[str]:
    model = onnx.load(folder / "onnx/model.onnx", load_external_data=False)
    return [tensor.name for tensor in model.graph.initializer if "." in tensor.name]


def test_the_tied_table_is_stored_once_in_two_bytes_a_number(exported: Callable[..., Path]) -> None:
    folder, sizes = exported(), (97 * 32, 48 * 32)
    model = onnx.load(folder / "onnx/model.onnx", load_external_data=False)
    shapes = [tuple(tensor.dims) for tensor in model.graph.initializer]
    assert shapes.count((97, 32)) == 1
    assert (32, 97) not in shapes
    parameters = open_bundle(folder).manifest.model.parameters
    assert sum(path.stat().st_size for path in folder.glob("onnx/*_data*")) < 2.5 * parameters + sum(sizes)


def test_a_forbidden_key_has_a_score_that_float16_can_hold(exported: Callable[..., Path]) -> None:
    model = onnx.load(exported() / "onnx/model.onnx", load_external_data=False)
    scalars = [numpy_helper.to_array(t) for t in model.graph.initializer if not t.dims]
    lowest = min(float(value) for value in scalars if value.dtype == np.float32)
    assert lowest == float(np.finfo(np.float16).min)
