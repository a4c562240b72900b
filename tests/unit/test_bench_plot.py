"""The picture of a measurement."""

from __future__ import annotations

import itertools
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.cli._bench_plot import check_plot, draw, spread
from gpt_onnx.runtime.bench import BenchPlan, BenchReport, ContenderReport, PromptReport
from gpt_onnx.runtime.bench.environment import describe
from gpt_onnx.runtime.bench.statistics import Summary


def prompt(length: int, step_ms: float) -> PromptReport:
    return PromptReport(
        prompt_tokens=length,
        batch_size=1,
        ttft_ms=Summary.of([length * step_ms / 4]),
        step_ms=Summary.of([step_ms]),
        decode_tokens_per_s=1e3 / step_ms,
        ttft_rounds_ms=(length * step_ms / 4,),
        step_rounds_ms=(step_ms,),
    )


def contender(name: str, step_ms: float, lengths: tuple[int, ...], kl: float | None) -> ContenderReport:
    return ContenderReport(
        name=name,
        kind="bundle",
        source=name,
        device="cpu",
        versions={},
        details={},
        file_bytes=None if kl is None else int(4e8 * step_ms / 20),
        kl=kl,
        start_ms=Summary.of([1.0]),
        load_ms=Summary.of([1.0]),
        resident_bytes=None,
        peak_resident_bytes=None,
        prompts=[prompt(length, step_ms * (1 + length / 4000)) for length in lengths],
    )


def report(*contenders: ContenderReport) -> BenchReport:
    return BenchReport(plan=BenchPlan(), environment=describe(2), contenders=contenders, notes=[])


def whole(lengths: tuple[int, ...] = (128, 900)) -> BenchReport:
    named = [("fp32", 20.0, 0.0), ("int8", 6.6, 1e-4), ("int4", 4.6, 0.02), ("eager PyTorch", 38.0, None)]
    return report(*(contender(name, step, lengths, kl) for name, step, kl in named))


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_same_report_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    draw(whole(), first)
    draw(whole(), second)
    assert first.stat().st_size > 5000
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("drawn", [whole((128,)), report(contender("a", 5.0, (8, 9), None))])
def test_one_length_or_no_quality_can_be_drawn_too(tmp_path: Path, drawn: BenchReport) -> None:
    draw(drawn, tmp_path / "out.svg")
    assert b"</svg>" in (tmp_path / "out.svg").read_bytes()


@pytest.mark.parametrize("name", ["out", "out.txt", "out.svg.gz"])
def test_a_file_that_is_no_picture_is_refused(name: str) -> None:
    with pytest.raises(click.BadParameter, match=r"let it end in \.svg, \.png, \.pdf"):
        check_plot(Path(name))


@given(st.lists(st.floats(-1e3, 1e3), max_size=12), st.floats(0.1, 50))
def test_labels_keep_their_order_and_a_distance(heights: list[float], apart: float) -> None:
    placed = spread(heights, apart)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    in_order = [placed[index] for index in order]
    assert all(upper - lower >= apart - 1e-6 for lower, upper in itertools.pairwise(in_order))


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([5.0, 1.0, 9.0], 3.9) == [5.0, 1.0, 9.0]
