"""Quantised weights in the gate: stored ones beside the source's, and what int8 inputs cost a program."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.config import GPTConfig
from gpt_onnx.export.gate.case import EXACT_PRODUCTS, Finding
from gpt_onnx.export.gate.foreign import ModuleReference
from gpt_onnx.export.gate.ours import GptReference
from gpt_onnx.export.gate.reference import Others, Units
from gpt_onnx.export.gate.report import GateReport, Outcome
from gpt_onnx.export.gate.rounding import Int8Inputs, IntegerProducts, rounded_to_int8
from gpt_onnx.export.gate.tolerance import Ratio
from gpt_onnx.export.gate.weights import check_float, check_rounded, same_numbers
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.quantized import Quantized
from gpt_onnx.export.quantize.rtn import round_to_nearest
from gpt_onnx.model import GPT

IDS = tuple(int(token) for token in np.random.default_rng(0).integers(0, 31, 12))
NAME = "h.0.attn.c_attn.weight"
GRIDS = [
    Grid(bits=4, block_size=16),
    Grid(bits=4, block_size=32, symmetric=True),
    Grid(bits=8, block_size=32, symmetric=True),
]


def weight(rows: int = 6, inputs: int = 64, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, inputs)).astype(np.float32)


def rounded_by_hand(x: NDArray[Any], block_size: int) -> NDArray[np.float32]:
    blocks = x.reshape(*x.shape[:-1], -1, block_size)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    found: NDArray[np.float32] = (np.rint(blocks / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)
    return found


# what is rounded


def test_inputs_are_rounded_on_the_scale_of_their_block() -> None:
    x = weight(3, 64) * np.repeat([1.0, 100.0], 32).astype(np.float32)
    found = rounded_to_int8(torch.from_numpy(x), 32).numpy()
    np.testing.assert_allclose(found, rounded_by_hand(x, 32), rtol=1e-5)
    assert np.abs(found - x)[:, :32].max() < 0.02  # the louder block does not coarsen this one


def test_a_block_of_zeros_stays() -> None:
    assert not rounded_to_int8(torch.zeros(2, 32), 16).any()


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": F.linear,
    "linear by name": lambda x, w: F.linear(x, weight=w),
    "matmul": lambda x, w: x @ w.T,
    "torch.matmul": lambda x, w: torch.matmul(x, w.t()),
    "addmm": lambda x, w: torch.addmm(torch.zeros(len(w)), x, w.transpose(0, 1)),
    "some rows": lambda x, w: torch.cat([F.linear(x, w[:2]), F.linear(x, w[2:])], dim=-1),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_product_is_found_however_it_is_written(form: str) -> None:
    module, x = nn.Linear(32, 5, bias=False), torch.randn(3, 32)
    with torch.no_grad(), Int8Inputs.of(module, {"weight": 16}):
        found = FORMS[form](x, module.weight)
    expected = rounded_by_hand(x.numpy(), 16) @ module.weight.detach().numpy().T
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_other_weights_and_float64_are_left_alone() -> None:
    module, other, x = nn.Linear(32, 5), nn.Linear(32, 5), torch.randn(3, 32)
    expected = other(x), copy.deepcopy(module).double()(x.double())
    with Int8Inputs.of(module, {"weight": 16}):
        assert torch.equal(other(x), expected[0])
        assert torch.equal(module.double()(x.double()), expected[1])


# programs with other weights


@pytest.fixture(scope="module")
def gpt() -> GPT:
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(vocab_size=31, context_length=16, n_embd=16, n_layer=2, n_head=2))
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return gpt.eval()


class Logits(nn.Module):
    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.gpt = gpt

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.gpt(ids)[0]
        return logits


def others(gpt: GPT, prefix: str = "", **blocks: int) -> Others:
    """Two weights, quantised; the first is the table of embedding and head."""
    names = ["wte.weight", NAME]
    values = {name: gpt.get_parameter(name).detach().numpy() for name in names}
    meant = {name: round_to_nearest(value, GRIDS[0]).dequantized() for name, value in values.items()}
    return Others(
        names=frozenset(prefix + name for name in names),
        read=lambda name: torch.from_numpy(meant[name.removeprefix(prefix)]),
        rounding=IntegerProducts(
            {prefix + name: 16 for name in names} if blocks.get("size") else {}, Int8Inputs
        ),
    )


def changed(gpt: GPT) -> GPT:
    copied, meant = copy.deepcopy(gpt), others(gpt)
    with torch.no_grad():
        for name in meant.names:
            copied.get_parameter(name).copy_(meant.read(name))
    return copied


def references(gpt: GPT, size: int) -> list[GptReference | ModuleReference]:
    return [
        GptReference(gpt).with_weights(others(gpt, size=size)),
        ModuleReference(Logits(gpt)).with_weights(others(gpt, "gpt.", size=size)),
    ]


@pytest.mark.parametrize("kind", [0, 1])
def test_the_truth_is_the_float64_program_with_those_weights(gpt: GPT, kind: int) -> None:
    with torch.no_grad():
        expected = changed(gpt).double()(torch.tensor([IDS]))[0][0].numpy()
    for size in (0, 16):
        (truth,) = references(gpt, size)[kind].compute_all([IDS])
        np.testing.assert_allclose(truth.logits(), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_unit_holds_what_int8_inputs_cost_unless_products_are_exact(gpt: GPT, kind: int) -> None:
    reference, plain = references(gpt, 16)[kind], references(gpt, 0)[kind]
    (rounding,) = reference.compute_all([IDS])
    (exact,) = reference.compute_all([IDS], Units(exact_products=True))
    (without,) = plain.compute_all([IDS])
    assert rounding.unit().peak > 100 * exact.unit().peak
    assert exact.unit() == without.unit()


def test_both_kinds_of_program_measure_the_same_cost(gpt: GPT) -> None:
    ours, theirs = (reference.compute_all([IDS])[0].unit() for reference in references(gpt, 16))
    assert ours.rms == pytest.approx(theirs.rms, rel=0.05)


def test_careful_units_round_inputs_too(gpt: GPT) -> None:
    for reference in references(gpt, 16):
        (plain,) = reference.compute_all([IDS])
        (careful,) = reference.compute_all([IDS], Units(beside=16))
        assert plain.unit().peak <= careful.unit().peak < 3 * plain.unit().peak


# stored weights


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_what_is_rounded_to_the_nearest_is_accepted(grid: Grid, scale: float) -> None:
    value = weight() * np.float32(scale)
    value[0], value[1, ::7] = 0, 50 * scale  # a row of nothing, and outliers
    assert check_rounded(value, round_to_nearest(value, grid), nearest=True) is None


def edited(quantized: Quantized, **integers: NDArray[Any]) -> Quantized:
    values: dict[str, NDArray[Any]] = {
        "integers": quantized.integers(),
        "scales": quantized.scales,
        "zeros": quantized.zeros(),
    }
    values |= integers
    return Quantized.of_integers(values["integers"], values["scales"], values["zeros"], quantized.grid)


def test_one_integer_that_is_off_by_one_is_seen() -> None:
    stored = round_to_nearest(weight(), GRIDS[0])
    integers = stored.integers().copy()
    integers[4, 33] += 1 if integers[4, 33] < 15 else -1
    assert check_rounded(weight(), edited(stored, integers=integers), nearest=True) == (
        "is not rounded to the nearest at [4, 33]"
    )


def test_a_zero_point_and_a_scale_that_are_wrong_are_seen() -> None:
    stored = round_to_nearest(weight(), GRIDS[0])
    zeros, scales = stored.zeros().copy(), stored.scales.copy()
    zeros[2, 1] -= 1
    scales[3, 0] *= 1.1
    for wrong in (edited(stored, zeros=zeros), edited(stored, scales=scales)):
        assert check_rounded(weight(), wrong, nearest=True) is not None


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_weight_that_loses_more_than_its_bits_is_seen_whatever_the_quantiser(grid: Grid) -> None:
    stored = round_to_nearest(weight(), grid)
    turned = edited(stored, integers=grid.levels - 1 - stored.integers())
    large = edited(stored, scales=stored.scales * np.float32({4: 1.8, 8: 1.2}[grid.bits]))
    assert check_rounded(weight(), stored, nearest=False) is None
    assert "bits lose at most" in str(check_rounded(weight(), large, nearest=False))
    assert "of the source in row" in str(check_rounded(weight(), turned, nearest=False))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_row_in_another_rows_place_is_seen_whatever_the_quantiser(grid: Grid) -> None:
    stored = round_to_nearest(weight(), grid)
    integers, scales, zeros = stored.integers().copy(), stored.scales.copy(), stored.zeros().copy()
    for part in (integers, scales, zeros):
        part[[1, 4]] = part[[4, 1]]
    swapped = edited(stored, integers=integers, scales=scales, zeros=zeros)
    wiped = stored.scales.copy()
    wiped[4] = 0
    assert re.search(r"of the source in row [14]; ", str(check_rounded(weight(), swapped, nearest=False)))
    wrong = str(check_rounded(weight(), edited(stored, scales=wiped), nearest=False))
    assert wrong.startswith("has 0.00 of the source in row 4; ")


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("times", [0.5, 1.5])
def test_scales_that_are_all_too_large_are_seen_whatever_the_quantiser(grid: Grid, times: float) -> None:
    stored = round_to_nearest(weight(), grid)
    wrong = edited(stored, scales=stored.scales * np.float32(times))
    found = str(check_rounded(weight(), wrong, nearest=False))
    assert "of the source" in found or "bits lose at most" in found


def test_rows_of_zeros_and_of_next_to_nothing_are_right() -> None:
    tiny = weight()
    tiny[2], tiny[3] = 0, tiny[3] * 1e-30
    assert check_rounded(tiny, round_to_nearest(tiny, GRIDS[0]), nearest=False) is None


def test_a_lattice_that_is_much_too_wide_is_seen() -> None:
    grid = GRIDS[0]
    wide = np.full((6, 4), 4.0, np.float32)
    zeros = np.full((6, 4), 8)
    stored = Quantized.of_integers(np.rint(weight() / 4) + 8, wide, zeros, grid)
    assert "in block 0 of row 0" in str(check_rounded(weight(), stored, nearest=True))


def test_a_weight_of_another_shape_is_seen() -> None:
    assert "[6, 64]" in str(check_rounded(weight(5), round_to_nearest(weight(), GRIDS[0]), nearest=True))


def test_a_float_weight_has_the_same_bits_in_either_orientation() -> None:
    value = weight()
    assert check_float(value, value) is None
    assert check_float(value, np.ascontiguousarray(value.T)) is None
    other = value.copy()
    other.view(np.uint32)[0, 0] ^= 1
    assert check_float(value, other) is not None


def test_the_same_numbers_in_other_bytes_are_the_same() -> None:
    stored = round_to_nearest(weight(), GRIDS[1])
    explicit = Grid(bits=4, block_size=32)
    again = Quantized.of_integers(stored.integers(), stored.scales, stored.zeros(), explicit)
    assert same_numbers(stored, again)
    zeros = stored.zeros().copy()
    zeros[0, 0] += 1
    assert not same_numbers(stored, Quantized.of_integers(stored.integers(), stored.scales, zeros, explicit))


# the report


def outcome(group: str, peak: float) -> Outcome:
    return Outcome(group=group, name="7 tokens", finding=Finding(ratio=Ratio(peak=peak, rms=peak / 2)))


def report(*outcomes: Outcome) -> GateReport:
    return GateReport(
        level="standard",
        provider="cpu",
        reference="GPT with the bundle's own quantised weights",
        cost="float32 with inputs of products rounded to int8",
        reference_dtype="float64",
        compared_with_original=False,
        versions={},
        hashes={},
        outcomes=outcomes,
    )


def test_a_report_says_what_its_units_are() -> None:
    good = report(outcome("lengths", 1.1), outcome(EXACT_PRODUCTS, 2.0))
    assert good.summary() == (
        "2 cases agree with GPT with the bundle's own quantised weights; the largest error is 1.1 times "
        "what float32 with inputs of products rounded to int8 costs, with exact products 2 times what "
        "float32 does."
    )
    assert good.to_json()["tolerance"]["f32"] == (
        "the program in float32 with inputs of products rounded to int8; in cases of exact products, in "
        "float32 alone"
    )


def test_a_fault_is_told_in_the_units_of_its_case() -> None:
    assert "9 times what float32 costs" in report(outcome(EXACT_PRODUCTS, 9)).summary()
    assert "9 times what float32 with inputs" in report(outcome("lengths", 9)).summary()
