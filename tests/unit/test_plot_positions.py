"""The measurements behind docs/positions.md, against numbers worked out by hand."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "positions.md"


class Study:
    """The modules of scripts/position_study."""

    def __init__(self) -> None:
        for name in ("encodings", "figures", "memory", "page", "perplexity"):
            setattr(self, name, importlib.import_module(f"position_study.{name}"))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.fixture(scope="module")
def study() -> Iterator[Study]:
    sys.path.insert(0, str(ROOT / "scripts"))
    yield Study()
    sys.path.remove(str(ROOT / "scripts"))


def test_the_reference_is_the_formula(study: Study) -> None:
    encoding = study.encodings.reference(np.array([0, 1, 70]), 8)
    assert encoding[0].tolist() == [0, 1] * 4
    assert encoding[1].tolist() == pytest.approx(
        [f(1 / d) for d in (1, 10, 100, 1000) for f in (math.sin, math.cos)], abs=1e-15
    )
    assert encoding[2, 4] == pytest.approx(math.sin(0.7), abs=1e-15)


def test_a_rotated_encoding_is_that_of_the_later_position(study: Study) -> None:
    positions = np.array([0, 1, 17, 1000])
    moved = study.encodings.rotated(study.encodings.reference(positions, 16), 5)
    np.testing.assert_allclose(moved, study.encodings.reference(positions + 5, 16), rtol=0, atol=1e-12)


@pytest.mark.parametrize("exponent", [1, 5, 20])
def test_probes_lie_in_their_octave_and_hold_its_end(study: Study, exponent: int) -> None:
    probes = study.encodings.probe_positions(exponent)
    assert 2 ** (exponent - 1) < probes.min() <= probes.max() == 2**exponent
    assert len(probes) == min(256, 2 ** (exponent - 1))


def test_every_way_has_a_line_in_the_figure(study: Study) -> None:
    assert {way.label for way in study.encodings.WAYS} == set(study.figures.LINES)


def test_eager_ways_agree_where_float32_is_enough(study: Study) -> None:
    positions = np.arange(8)
    for way in study.encodings.WAYS:
        if not way.as_graph:
            encoded = study.encodings.encoder(way, 8)(positions)
            np.testing.assert_allclose(encoded, study.encodings.reference(positions, 8), rtol=0, atol=2e-6)


def test_table_costs_of_gpt2_and_of_a_175b_model(study: Study) -> None:
    small, large = study.memory.table_costs(["gpt2", "gpt3"])
    assert (small.parameters, small.model_parameters) == (1024 * 768, 124_439_808)
    assert (large.parameters, round(large.model_parameters / 1e8)) == (25_165_824, 1746)
    assert small.share == pytest.approx(0.00632, abs=1e-5)


def test_peak_bytes_of_a_chain_and_of_a_fork(study: Study) -> None:
    chain = [(["x"], ["a"]), (["a"], ["b"]), (["b"], ["c"])]
    assert study.memory.peak_bytes(chain, {"a": 8, "b": 8, "c": 4}) == 16
    fork = [(["x"], ["a"]), (["a", "k"], ["b"]), (["b"], ["c"]), (["a", "c"], ["d"])]
    assert study.memory.peak_bytes(fork, {"a": 8, "b": 8, "c": 8, "d": 8}) == 24
    assert (
        study.memory.peak_bytes([(["x"], ["a", "unused"]), (["a"], ["b"])], {"a": 1, "unused": 5, "b": 2})
        == 6
    )


def test_constants_are_counted_in_initializers_and_nodes(study: Study) -> None:
    from onnx import TensorProto, helper, numpy_helper

    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(3)))
    graph = helper.make_graph(
        [constant, helper.make_node("Add", ["x", "c"], ["y"])],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [3])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [3])],
        [numpy_helper.from_array(np.zeros((2, 5), np.float32), "w")],
    )
    assert study.memory.constant_bytes(helper.make_model(graph)) == 3 * 8 + 10 * 4


def test_windows_start_every_stride_and_are_whole(study: Study) -> None:
    windows = study.perplexity.cut_windows(np.arange(12), 6, 2)
    assert windows.tolist() == [[0, 1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6, 7, 8], [4, 5, 6, 7, 8, 9, 10]]
    with pytest.raises(ValueError, match="has 6 tokens"):
        study.perplexity.cut_windows(np.arange(6), 6, 2)


def test_a_row_of_aligned_losses_is_about_the_same_tokens_in_each_piece(study: Study) -> None:
    windows = study.perplexity.cut_windows(np.arange(40), 12, 3)
    predicted = windows[:, 1:].astype(np.float64)  # "losses" that name the predicted token
    aligned = study.perplexity.align(predicted, 4)
    assert aligned.shape == (len(windows) - 3, 12)
    for row in aligned.reshape(-1, 4, 3):
        assert (row == row[0]).all()
    assert aligned[0, :3].tolist() == [10, 11, 12]
    with pytest.raises(ValueError, match="3 windows; 4 are needed"):
        study.perplexity.align(predicted[:3], 4)


def test_unigram_perplexity_of_even_and_of_uneven_counts(study: Study) -> None:
    assert study.perplexity.unigram_perplexity(np.array([1, 2, 3, 4] * 5)) == pytest.approx(4)
    uneven = math.exp(0.75 * math.log(4 / 3) + 0.25 * math.log(4))
    assert study.perplexity.unigram_perplexity(np.array([7, 7, 7, 9])) == pytest.approx(uneven)


def test_window_losses_are_minus_log_of_the_predicted_probability(study: Study) -> None:
    import torch

    from gpt_onnx.config import GPTConfig
    from gpt_onnx.model import GPT

    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=11, context_length=8, n_embd=8, n_layer=1, n_head=2)).eval()
    windows = np.random.default_rng(0).integers(0, 11, (3, 6))
    losses = study.perplexity.window_losses(model, windows)
    with torch.no_grad():
        probabilities = torch.softmax(model(torch.from_numpy(windows[:, :-1]))[0].double(), -1).numpy()
    chosen = np.take_along_axis(probabilities, windows[:, 1:, None], axis=2)[..., 0]
    np.testing.assert_allclose(losses, -np.log(chosen), rtol=0, atol=1e-6)


def losses_of(study: Study, values: list[float]) -> Any:
    """Four rows of 8 pieces of 4 positions; each piece has one loss throughout."""
    losses = np.repeat(np.log(values), 4)[None].repeat(4, axis=0)
    return study.perplexity.PositionLosses(context_length=8, losses=losses, unigram=500.0, weights="abc")


def test_perplexity_is_exp_of_the_mean_loss_and_quartiles_are_over_rows(study: Study) -> None:
    losses = np.log([[2.0, 8.0], [1.0, 1.0], [4.0, 4.0], [9.0, 9.0], [5.0, 5.0]])
    measured = study.perplexity.PositionLosses(context_length=1, losses=losses, unigram=9.0, weights="")
    assert measured.perplexity(0, 1) == pytest.approx((2 * 1 * 4 * 9 * 5) ** 0.2)
    assert measured.quartiles(0, 2) == pytest.approx((4, 4, 5))  # rows: 4, 1, 4, 9, 5


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.9, "a little better"),
        (1.0, "as good"),
        (1.2, "a little worse"),
        (1.9, "clearly worse"),
        (3.0, "much worse"),
        (50.0, "useless"),
    ],
)
def test_the_verdict_follows_the_ratio(study: Study, ratio: float, words: str) -> None:
    assert study.perplexity.verdict(ratio) == words


def test_the_perplexity_block_says_what_was_measured(study: Study) -> None:
    block = study.page.perplexity_block(losses_of(study, [60, 20, 20, 20, 30, 30, 200, 200]))
    assert max(map(len, block.splitlines())) <= 118
    block = block.replace("\n", " ")
    assert "| 0 to 3 | 60.0 | 60.0 | 60.0 to 60.0 | 3.00 |" in block
    assert "| 4 to 7 | 20.0 | 20.0 | 20.0 to 20.0 | 1.00 |" in block
    assert "at 8 to 15 it is as good (1.00 times)" in block
    assert "at 16 to 23 it is clearly worse (1.50 times)" in block
    assert "at 24 to 31 it is useless (10.00 times)" in block
    assert "16 tokens in each row" in block


def test_a_block_is_replaced_between_its_markers_and_nowhere_else(study: Study) -> None:
    page = "a\n<!-- begin x: who -->\nold\n<!-- end x -->\nb\n<!-- begin y: who -->\n<!-- end y -->\n"
    once = study.page.replace_block(page, "x", r"new \1")
    assert once == page.replace("old\n", "\nnew \\1\n\n")
    assert study.page.replace_block(once, "x", r"new \1") == once
    for wrong in ("z", "x: who"):
        with pytest.raises(ValueError, match="exactly once"):
            study.page.replace_block(page, wrong, "new")


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 B"), (4104, "4.1 kB"), (3_145_728, "3.1 MB"), (12 * 10**9, "12.0 GB")]
)
def test_sizes_are_written_in_the_unit_that_fits(study: Study, count: int, text: str) -> None:
    assert study.page.size(count) == text


def test_the_divisors_of_eight_columns_are_powers_of_ten(study: Study) -> None:
    assert study.page.divisor_block([8]).endswith("| 8 | 1, 10, 100, 1,000 |")
    assert study.page.divisor_block([512]).endswith("| 512 | 1, 1.03663, 1.07461, ..., 9,646.62 |")


def test_errors_are_the_largest_up_to_each_exponent(study: Study) -> None:
    block = study.page.error_block({"way": [3e-3, 1e-3, 2e-2]}, range(3), (1, 2))
    assert block.endswith("| way | 3.0e-03 | 2.0e-02 |")


def test_a_figure_is_written_with_equal_bytes_and_no_date(study: Study, tmp_path: Path) -> None:
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        study.figures.save(study.figures.rotation, path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert b"dc:date" not in first
    assert b"matplotlib.org" not in first


def test_the_page_has_every_block_and_every_figure(study: Study) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in ("divisors", "rotation", "errors", "memory", "running", "perplexity"):
        study.page.replace_block(page, name, "x")
    figures = ("heatmap", "similarity", "rotation", "error", "memory", "perplexity")
    for name in figures:
        assert f"(images/positions-{name}.svg)" in page
        assert (PAGE.parent / "images" / f"positions-{name}.svg").is_file()
