"""The gate of quantised bundles is tested by mutation, as that of others is (test_gate_mutation).

What is wrong with a stored weight is seen beside the source's; what is wrong with the graph is seen beside
the source's program with the stored weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError, GptOnnxError
from gpt_onnx.export.gate import GateReport, quantized_reference, run_gate
from gpt_onnx.export.gpt_source import GptSource
from gpt_onnx.model import GPT
from tests.parity.test_gate_mutation import Mutant, other_epsilon, swapped_keys_and_values

BLOCK, WIDTH = 16, 64
PROJECTION = "h.0.attn.c_proj.weight"
Edit = Callable[["QuantizedMutant"], None]


class QuantizedMutant(Mutant):
    """A copy of a quantised bundle whose graph and weights can be edited."""

    def change(self, name: str, dtype: Any, edit: Callable[[NDArray[Any]], None]) -> None:
        """Edit an initializer in place, in the graph or in the data file."""
        tensor = next(tensor for tensor in self.model.graph.initializer if tensor.name == name)
        if tensor.raw_data:
            values = np.frombuffer(tensor.raw_data, dtype).reshape(tensor.dims).copy()
            edit(values)
            tensor.raw_data = values.tobytes()
            return
        place = {entry.key: entry.value for entry in tensor.external_data}
        size = int(np.prod(tensor.dims))
        edit(np.frombuffer(self.data, dtype, size, int(place["offset"])).reshape(tensor.dims))


def zero_point_off_by_one(mutant: QuantizedMutant) -> None:
    def edit(zeros: NDArray[Any]) -> None:
        zeros[3, 0] += 1 if zeros[3, 0] & 15 < 15 else -1

    mutant.change(f"{PROJECTION}.zero_points", np.uint8, edit)


def swapped_scales(mutant: QuantizedMutant) -> None:
    def edit(scales: NDArray[Any]) -> None:
        scales[[4, 5]] = scales[[5, 4]]

    mutant.change(f"{PROJECTION}.scales", np.float32, edit)


def swapped_nibbles(mutant: QuantizedMutant) -> None:
    def edit(packed: NDArray[Any]) -> None:
        packed[7] = (packed[7] << 4) | (packed[7] >> 4)

    mutant.change(f"{PROJECTION}.packed", np.uint8, edit)


def low_bit_of_an_integer(mutant: QuantizedMutant) -> None:
    def edit(packed: NDArray[Any]) -> None:
        packed[9, 1, 2] ^= 1

    mutant.change(f"{PROJECTION}.packed", np.uint8, edit)


def shifted_row(mutant: QuantizedMutant) -> None:
    def edit(packed: NDArray[Any]) -> None:
        packed[11] = np.roll(packed[11], 1)

    mutant.change("wte.weight.packed", np.uint8, edit)


def other_norm(mutant: QuantizedMutant) -> None:
    def edit(weight: NDArray[Any]) -> None:
        weight.view(np.uint32)[5] ^= 1

    mutant.change("ln_f.weight", np.float32, edit)


WEIGHT_FAULTS: dict[str, tuple[Edit, str]] = {
    "a zero point off by one in one block": (zero_point_off_by_one, PROJECTION),
    "two rows of scales swapped": (swapped_scales, PROJECTION),
    "nibbles swapped in one row": (swapped_nibbles, PROJECTION),
    "the low bit of one integer": (low_bit_of_an_integer, PROJECTION),
    "a row of the table shifted": (shifted_row, "wte.weight"),
    "the low bit of a norm's weight": (other_norm, "ln_f.weight"),
}
"""Fault to edit, and the weight that the report must name."""


def dropped_bias(mutant: QuantizedMutant) -> None:
    """Of a product that adds one itself, or of the norm that adds it."""
    biased = [node for node in mutant.model.graph.node if any(n.endswith("c_fc.bias") for n in node.input)]
    index = next(i for i, name in enumerate(biased[0].input) if name.endswith("c_fc.bias"))
    zeros = np.zeros(4 * WIDTH, np.float32)
    biased[0].input[index] = mutant.constant("no_bias", zeros)


def other_norm_epsilon(mutant: QuantizedMutant) -> None:
    fused = [node for node in mutant.model.graph.node if node.op_type == "SkipLayerNormalization"]
    for node in fused:
        mutant.attribute(node, "epsilon").f = 1e-6
    if not fused:
        other_epsilon(mutant)


def swapped_layers(mutant: QuantizedMutant) -> None:
    swap = {"h.0.": "h.1.", "h.1.": "h.0."}
    for node in mutant.nodes("MatMulNBits"):
        for index, name in enumerate(node.input):
            node.input[index] = swap.get(name[:4], name[:4]) + name[4:]


GRAPH_FAULTS: dict[str, Edit] = {
    "a dropped bias": dropped_bias,
    "an epsilon of 1e-6 for 1e-5": other_norm_epsilon,
    "the products of two layers swapped": swapped_layers,
    "keys and values swapped in the cache": swapped_keys_and_values,
}


def told_exact(mutant: QuantizedMutant) -> None:
    """Let the manifest say that inputs are not rounded."""
    quantization = mutant.manifest.quantization
    assert quantization is not None
    exact = dataclasses.replace(quantization, accuracy_level=0)
    mutant.manifest = mutant.manifest.replace(quantization=exact)


def exact(mutant: QuantizedMutant) -> None:
    """Make a right bundle of accuracy level 0."""
    told_exact(mutant)
    for node in mutant.nodes("MatMulNBits"):
        mutant.attribute(node, "accuracy_level").i = 0


@pytest.fixture(scope="module")
def source(make_gpt: Callable[..., GPT]) -> GptSource:
    return GptSource.of_model(make_gpt(activation="gelu_tanh", n_embd=WIDTH))


@pytest.fixture(scope="module")
def bundle(make_gpt: Callable[..., GPT], export_unchecked: Callable[..., Path]) -> Path:
    """Of accuracy level 4."""
    gpt = make_gpt(activation="gelu_tanh", n_embd=WIDTH)
    return export_unchecked(gpt, precision="int4", block_size=BLOCK, quantizer="rtn", accuracy_level=4)


@pytest.fixture
def gate(bundle: Path, source: GptSource, tmp_path: Path) -> Callable[[Edit], GateReport]:
    """Gates the bundle after an edit."""

    def run(edit: Edit) -> GateReport:
        mutant = QuantizedMutant(bundle, tmp_path / "mutant")
        edit(mutant)
        folder = mutant.saved()
        return run_gate(folder, quantized_reference(source, folder), level="quick", threads=1)

    return run


Gate = Callable[[Edit], GateReport]


def failed(report: GateReport) -> set[str]:
    return {outcome.group for outcome in report.outcomes if not outcome.passed}


@pytest.mark.parametrize("edit", [lambda mutant: None, exact], ids=["level 4", "level 0"])
def test_a_right_bundle_is_accepted(gate: Gate, edit: Edit) -> None:
    report = gate(edit)
    assert report.passed, report.summary()
    assert report.reference == "GPT with the bundle's own quantised weights"


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


def test_inputs_that_are_rounded_where_they_should_not_be_are_refused(gate: Gate) -> None:
    with pytest.raises(BundleError, match=r"quantization\.accuracy_level is 0 and node .* says 4"):
        gate(told_exact)


def test_a_node_with_another_block_size_is_refused(gate: Gate) -> None:
    def edit(mutant: QuantizedMutant) -> None:
        mutant.attribute(mutant.nodes("MatMulNBits")[0], "block_size").i = 2 * BLOCK

    with pytest.raises(GptOnnxError):
        gate(edit)


def test_another_model_s_weights_are_refused(bundle: Path, make_gpt: Callable[..., GPT]) -> None:
    other = GptSource.of_model(make_gpt(activation="gelu_tanh", n_embd=WIDTH, seed=1))
    report = run_gate(bundle, quantized_reference(other, bundle), level="quick", threads=1)
    assert "weights" in failed(report)
