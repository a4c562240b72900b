"""What the loop costs beside the runs of the graph, and what guessing costs where nothing repeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.runtime import OnnxGPT, Sampling
from gpt_onnx.runtime._session import Binding

PROMPT = [int(token) for token in np.random.default_rng(0).permutation(4000)[:100]]
NEW_TOKENS = 60
SHARE = 0.4
"""Of a step of the shipped model, whose runs take half a millisecond; of one of 124M parameters it is a
fiftieth. A loop that binds its inputs anew, or copies its cache, has more."""
GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def engine(exported: Callable[..., Path], threads: int) -> OnnxGPT:
    return OnnxGPT.load(exported(), threads=threads)


@pytest.fixture
def run_seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of the runs of graphs, as they come."""
    seconds: list[float] = []
    run = Binding.run

    def timed(binding: Binding) -> None:
        started = time.perf_counter()
        run(binding)
        seconds.append(time.perf_counter() - started)

    monkeypatch.setattr(Binding, "run", timed)
    return seconds


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()], ids=["greedy", "default"])
def test_most_of_a_step_is_the_graph(
    engine: OnnxGPT, run_seconds: list[float], sampling: Sampling, settle: Any
) -> None:
    def measure() -> Sequence[float]:
        stream = engine.stream(PROMPT, NEW_TOKENS, sampling, speculate="off", ignore_eos=True)
        next(stream)
        shares = []
        for _ in range(NEW_TOKENS - 1):
            run_seconds.clear()
            started = time.perf_counter()
            next(stream)
            shares.append(sum(run_seconds) / (time.perf_counter() - started))
        return shares

    assert settle(measure, 1 - SHARE) >= 1 - SHARE


def decode_seconds(engine: OnnxGPT, prompt: Sequence[int], speculate: str) -> float:
    stream = engine.stream(prompt, NEW_TOKENS, GREEDY, speculate=speculate, ignore_eos=True)
    next(stream)
    started = time.perf_counter()
    for _ in stream:
        pass
    return time.perf_counter() - started


@pytest.mark.slow
def test_looking_for_guesses_costs_little_where_nothing_repeats(engine: OnnxGPT, settle: Any) -> None:
    def measure() -> Sequence[float]:
        pairs = [[decode_seconds(engine, PROMPT, how) for how in ("off", "auto")] for _ in range(9)]
        return [off / auto for off, auto in pairs]

    assert settle(measure, 0.95) >= 0.95
