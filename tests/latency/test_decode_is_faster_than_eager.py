"""A bundle decodes faster than the same weights in eager PyTorch with a cache written in place."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.runtime.bench import BenchPlan, BenchReport, bench

PROMPTS = (16, 200)
DECODE, TTFT = 1.0, 0.6
"""How many times faster the bundle must be at least. A prompt is mostly large matrix products, at which both
libraries are good, so no more is asked than that the bundle is not much slower."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measure(exported: Callable[..., Path], checkpoint: Path, threads: int) -> Callable[[int], BenchReport]:
    """Runs the comparison, once for each number."""

    @cache
    def run(number: int) -> BenchReport:
        plan = BenchPlan(prompt_tokens=PROMPTS, new_tokens=24, repetitions=7, threads=threads, seed=number)
        return bench([exported()], against=checkpoint, plan=plan)

    return run


def ratios(measure: Callable[[int], BenchReport], length: int, what: str) -> Callable[[], tuple[float, ...]]:
    """Return a function that gives the ratios of the rounds of one run after another."""
    numbers = iter(range(100))

    def next_ratios() -> tuple[float, ...]:
        prompts = measure(next(numbers)).contenders[0].prompts
        versus: Any = next(prompt.versus for prompt in prompts if prompt.prompt_tokens == length)
        rounds: tuple[float, ...] = getattr(versus, what).rounds
        return rounds

    return next_ratios


@pytest.mark.parametrize("length", PROMPTS)
def test_a_step_is_faster(measure: Any, settle: Any, length: int) -> None:
    assert settle(ratios(measure, length, "decode"), DECODE) >= DECODE


@pytest.mark.parametrize("length", PROMPTS)
def test_the_first_token_is_not_much_later(measure: Any, settle: Any, length: int) -> None:
    assert settle(ratios(measure, length, "ttft"), TTFT) >= TTFT


def test_both_choose_the_same_tokens(measure: Any) -> None:
    prompts = measure(0).contenders[0].prompts
    assert {prompt.versus.tokens.verdict for prompt in prompts} <= {"same", "same until a near tie"}


def test_the_bundle_is_ready_earlier_and_needs_less_memory(measure: Any) -> None:
    bundle, eager = measure(0).contenders
    assert bundle.start_ms.median < eager.start_ms.median
    assert bundle.peak_resident_bytes < eager.peak_resident_bytes
