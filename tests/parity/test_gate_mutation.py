"""The gate is tested by mutation: graphs with one fault each are refused, harmless changes are accepted.

Each fault is put into the finished graph or its weights, and the bundle is sealed again, so that nothing but
the numbers can tell.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gpt_onnx.bundle import check_graph, open_bundle, seal
from gpt_onnx.export.gate import GateReport, GptReference, run_gate
from gpt_onnx.model import GPT

TARGETS = ("cpu", "portable")
HEAD_SIZE, WIDTH = 8, 32
Edit = Callable[["Mutant"], None]


class Mutant:
    """A copy of a bundle whose graph and weights can be edited."""

    def __init__(self, original: Path, folder: Path) -> None:
        self.folder = shutil.copytree(original, folder)
        self.manifest = open_bundle(original).manifest
        self.model = onnx.load(folder / "onnx/model.onnx", load_external_data=False)
        self.data = bytearray((folder / "onnx/model.onnx_data").read_bytes())

    def nodes(self, op: str) -> list[Any]:
        """Nodes of one op type, in their order."""
        found = [node for node in self.model.graph.node if node.op_type == op]
        assert found, f"the graph has no {op}"
        return found

    def node_with(self, op: str, name: str) -> Any:
        """The node of a type that reads a value."""
        return next(node for node in self.nodes(op) if name in node.input)

    def reader(self, name: str) -> Any:
        """The one node that reads a value."""
        (node,) = (node for node in self.model.graph.node if name in node.input)
        return node

    def attribute(self, node: Any, name: str) -> Any:
        return next(attribute for attribute in node.attribute if attribute.name == name)

    def change_scalars(self, which: Callable[[float], bool], change: Callable[[float], float]) -> int:
        """Change float constants without dims, and return how many."""
        tensors = [*self.model.graph.initializer]
        tensors += [node.attribute[0].t for node in self.model.graph.node if node.op_type == "Constant"]
        scalars = [t for t in tensors if t.data_type == onnx.TensorProto.FLOAT and not t.dims]
        chosen = [t for t in scalars if which(float(numpy_helper.to_array(t)))]
        for tensor in chosen:
            value = np.asarray(change(float(numpy_helper.to_array(tensor))), np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
        return len(chosen)

    def weight(self, name: str) -> np.ndarray:
        """A view of a weight in the data file: what is written there is written in the bundle."""
        tensor = next(tensor for tensor in self.model.graph.initializer if tensor.name == name)
        place = {entry.key: entry.value for entry in tensor.external_data}
        size = int(np.prod(tensor.dims))
        return np.frombuffer(self.data, np.float32, size, int(place["offset"])).reshape(tensor.dims)

    def insert(self, node: Any, *, before: Any) -> None:
        position = next(i for i, other in enumerate(self.model.graph.node) if other is before)
        self.model.graph.node.insert(position, node)

    def constant(self, name: str, values: Any) -> str:
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def saved(self) -> Path:
        """Write what was edited, seal, and see that nothing but numbers can be wrong."""
        (self.folder / "onnx/model.onnx").write_bytes(self.model.SerializeToString())
        (self.folder / "onnx/model.onnx_data").write_bytes(self.data)
        seal(self.folder, self.manifest)
        check_graph(open_bundle(self.folder))
        return self.folder


def other_epsilon(mutant: Mutant) -> None:
    norms = [node for node in mutant.model.graph.node if node.op_type.endswith("LayerNormalization")]
    assert len(norms) >= 5
    for node in norms:
        mutant.attribute(node, "epsilon").f = 1e-6


def dropped_bias(mutant: Mutant) -> None:
    node = mutant.reader("h.0.attn.c_proj.bias")
    if node.op_type == "SkipLayerNormalization":
        assert node.input[-1] == "h.0.attn.c_proj.bias"
        del node.input[-1]
        return
    kept = next(name for name in node.input if not name.endswith("bias"))
    mutant.insert(helper.make_node("Identity", [kept], list(node.output)), before=node)
    mutant.model.graph.node.remove(node)


def shifted_positions(mutant: Mutant) -> None:
    node = mutant.reader("position_ids")
    one = mutant.constant("one", np.array(1, np.int64))
    mutant.insert(helper.make_node("Add", ["position_ids", one], ["shifted"]), before=node)
    node.input[0] = "shifted"


def shifted_positions_in_single_steps(mutant: Mutant) -> None:
    """Right in every prompt; one too high wherever one token is computed alone."""
    node = mutant.reader("position_ids")
    one = mutant.constant("one", np.array([1], np.int64))
    for new in (
        helper.make_node("Shape", ["input_ids"], ["new_tokens"], start=1, end=2),
        helper.make_node("Sub", [one, "new_tokens"], ["missing"]),
        helper.make_node("Sign", ["missing"], ["sign"]),
        helper.make_node("Add", ["sign", one], ["single"]),
        helper.make_node("Add", ["position_ids", "single"], ["shifted"]),
    ):
        mutant.insert(new, before=node)
    node.input[0] = "shifted"


def mask_that_sees_ahead(mutant: Mutant) -> None:
    node = mutant.nodes("LessOrEqual")[0]
    one = mutant.constant("one", np.array(1, np.int64))
    mutant.insert(helper.make_node("Add", [node.input[1], one], ["ahead"]), before=node)
    node.input[1] = "ahead"


def swapped_layers(mutant: Mutant) -> None:
    swap = {"h.0.": "h.1.", "h.1.": "h.0."}
    for node in mutant.model.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = swap.get(name[:4], name[:4]) + name[4:]


def other_scale(mutant: Mutant) -> None:
    if mutant.manifest.graph.attention == "gqa":
        for node in mutant.nodes("GroupQueryAttention"):
            mutant.attribute(node, "scale").f *= 1 + 1e-5
        return
    assert mutant.change_scalars(lambda value: 0 < value < 1, lambda value: value * (1 + 1e-5)) == 1


def erf_for_tanh(mutant: Mutant) -> None:
    approximate = mutant.attribute(mutant.nodes("Gelu")[1], "approximate")
    assert approximate.s == b"tanh"
    approximate.s = b"none"


def halved_matrix(mutant: Mutant) -> None:
    weight = mutant.weight("h.1.mlp.c_fc.weight")
    weight[...] = weight.astype(np.float16)


def flipped_bit(mutant: Mutant, bit: int) -> None:
    mutant.weight("h.0.mlp.c_proj.weight").view(np.uint32)[5, 7] ^= np.uint32(1 << bit)


def high_bit(mutant: Mutant) -> None:
    flipped_bit(mutant, 21)


def swapped_heads(mutant: Mutant) -> None:
    weight = mutant.weight("h.0.attn.c_attn.weight")
    first, second = slice(0, HEAD_SIZE), slice(HEAD_SIZE, 2 * HEAD_SIZE)
    weight[:, first], weight[:, second] = weight[:, second].copy(), weight[:, first].copy()


def swapped_keys_and_values(mutant: Mutant) -> None:
    """Right within each run; what a decoder carries to the next one is wrong."""
    inner = {"present.1.key": "inner_key", "present.1.value": "inner_value"}
    for node in mutant.model.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = inner.get(name, name)
    for source, output in (("inner_key", "present.1.value"), ("inner_value", "present.1.key")):
        mutant.model.graph.node.append(helper.make_node("Identity", [source], [output]))


def not_a_number(mutant: Mutant) -> None:
    mutant.weight("wte.weight")[3, 3] = np.nan


FAULTS: dict[str, Edit] = {
    "an epsilon of 1e-6 for 1e-5": other_epsilon,
    "a dropped bias": dropped_bias,
    "positions off by one": shifted_positions,
    "positions off by one in single steps": shifted_positions_in_single_steps,
    "two layers swapped": swapped_layers,
    "a scale off by 1e-5": other_scale,
    "erf for tanh Gelu in one layer": erf_for_tanh,
    "one matrix in half precision": halved_matrix,
    "one high bit of a weight": high_bit,
    "two query heads swapped": swapped_heads,
    "keys and values swapped in the cache": swapped_keys_and_values,
    "a NaN weight": not_a_number,
}


@pytest.fixture(scope="module")
def gpt(make_gpt: Callable[..., GPT]) -> GPT:
    return make_gpt(activation="gelu_tanh")


@pytest.fixture(scope="module")
def reference(gpt: GPT) -> GptReference:
    return GptReference(gpt)


@pytest.fixture(scope="module")
def bundles(gpt: GPT, export_unchecked: Callable[..., Path]) -> dict[str, Path]:
    return {target: export_unchecked(gpt, target=target) for target in TARGETS}


@pytest.fixture
def gate(
    bundles: dict[str, Path], reference: GptReference, tmp_path: Path
) -> Callable[[str, Edit], GateReport]:
    """Gates a bundle of a target after an edit."""

    def run(target: str, edit: Edit) -> GateReport:
        mutant = Mutant(bundles[target], tmp_path / "mutant")
        edit(mutant)
        return run_gate(mutant.saved(), reference, level="quick")

    return run


Gate = Callable[[str, Edit], GateReport]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_graph_is_refused(gate: Gate, target: str, fault: str) -> None:
    report = gate(target, FAULTS[fault])
    assert not report.passed


def test_a_mask_that_sees_one_token_ahead_is_refused(gate: Gate) -> None:
    assert not gate("portable", mask_that_sees_ahead).passed


@pytest.mark.parametrize("target", TARGETS)
def test_the_unchanged_graph_is_accepted(gate: Gate, target: str) -> None:
    report = gate(target, lambda mutant: None)
    assert report.passed, report.summary()


@pytest.mark.parametrize("target", TARGETS)
def test_one_low_bit_of_a_weight_is_accepted(gate: Gate, target: str) -> None:
    report = gate(target, lambda mutant: flipped_bit(mutant, 0))
    assert report.passed, report.summary()


def test_another_finite_mask_constant_is_accepted(gate: Gate) -> None:
    def other_constant(mutant: Mutant) -> None:
        assert mutant.change_scalars(lambda value: value < -1e30, lambda value: -1e9) == 1

    report = gate("portable", other_constant)
    assert report.passed, report.summary()


def test_a_bundle_of_another_model_is_refused(bundles: dict[str, Path], make_gpt: Callable[..., GPT]) -> None:
    report = run_gate(bundles["cpu"], GptReference(make_gpt(activation="gelu_tanh", seed=1)), level="quick")
    assert not report.passed
    assert "cases differ from GPT" in report.summary()
