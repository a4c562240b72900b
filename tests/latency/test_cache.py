"""What a cache is for: a step costs the same whatever room there is, and far less than computing anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime.bench import BenchPlan, bench
from gpt_onnx.runtime.decoder import Decoder

PROMPT = 100
SMALL, LARGE = 256, 65_536
ROUNDS, STEPS = 9, 12


def step_time(decoder: Decoder) -> float:
    """The median time of a step after the prompt."""
    times = []
    for _ in range(STEPS):
        before = time.perf_counter()
        decoder.append([[7]])
        times.append(time.perf_counter() - before)
    decoder.rewind([PROMPT])
    return float(np.median(times))


@pytest.fixture(scope="module")
def decoders(exported: Callable[..., Path], threads: int) -> list[Decoder]:
    """Two decoders of one engine after the same prompt, with room for few and for many tokens."""
    engine = OnnxGPT.load(exported(), threads=threads)
    made = [engine.decoder(capacity=capacity) for capacity in (SMALL, LARGE)]
    for decoder in made:
        decoder.append([np.arange(PROMPT)])
        step_time(decoder)
    return made


def test_a_step_does_not_depend_on_the_capacity(decoders: list[Decoder], settle: Any) -> None:
    def measure() -> Sequence[float]:
        pairs = [[step_time(decoder) for decoder in decoders] for _ in range(ROUNDS)]
        return [small / large for small, large in pairs]

    assert settle(measure, 0.8) >= 0.8


@pytest.mark.slow
def test_a_step_beats_computing_256_tokens_anew(
    exported: Callable[..., Path], threads: int, settle: Any
) -> None:
    def measure() -> Sequence[float]:
        plan = BenchPlan(prompt_tokens=(256,), new_tokens=6, repetitions=3, threads=threads)
        cached, plain = bench([exported(), exported(kv_cache=False)], plan=plan).contenders
        return [plain.prompts[0].step_ms.median / cached.prompts[0].step_ms.median]

    assert settle(measure, 3.0) >= 3.0
