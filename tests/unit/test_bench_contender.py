from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpt_onnx.runtime.bench.contender import WARM_STEPS, run_answer, run_burst

VOCAB = 5
MS = 1e-3


class Counter:
    """Chooses (token + 1) mod V; a prompt takes a second and a step takes 10 ms of its own time."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.now = 0.0
        self.calls: list[str] = []
        self.capacities: list[int] = []
        self.collecting: set[bool] = set()

    def clock(self) -> float:
        return self.now

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        self.now += 1.0
        self.calls.append("start")
        self.capacities.append(capacity)
        return self._choose([row[-1] for row in rows])

    def step(self, tokens: Sequence[int]) -> list[int]:
        self.now += 10 * MS
        self.calls.append("step")
        self.collecting.add(gc.isenabled())
        return self._choose(tokens)

    def scores(self) -> NDArray[np.float32]:
        scores = np.zeros((len(self._next), VOCAB), np.float32)
        for row, token in enumerate(self._next):
            scores[row, token], scores[row, (token + 1) % VOCAB] = 4.0, 3.0
        return scores

    def _choose(self, tokens: Sequence[int]) -> list[int]:
        self._next = [(token + 1) % VOCAB for token in tokens]
        return self._next


def test_a_burst_times_the_first_token_and_each_step_apart() -> None:
    contender = Counter()
    burst = run_burst(contender, [[1, 2, 3]], 6, contender.clock)
    assert burst.ttft_ms == pytest.approx(1000)
    assert burst.step_ms == pytest.approx([10] * 5)


def test_a_burst_warms_up_before_the_clock_starts_and_asks_for_just_enough_room() -> None:
    contender = Counter()
    run_burst(contender, [[1, 2, 3]], 6, contender.clock)
    assert contender.calls == ["start", *["step"] * WARM_STEPS, "start", *["step"] * 5]
    assert contender.capacities == [8, 8]


def test_the_garbage_collector_rests_while_the_clock_runs_and_goes_on_after() -> None:
    contender = Counter()
    run_burst(contender, [[1]], 9, contender.clock)
    assert False in contender.collecting
    assert gc.isenabled()


def test_an_answer_holds_tokens_by_step_and_row_and_how_clear_they_were() -> None:
    answer = run_answer(Counter(), [[0], [3]], 3)
    assert answer.tokens == [[1, 4], [2, 0], [3, 1]]
    assert answer.runners_up == [[2, 0], [3, 1], [4, 2]]
    assert np.ravel(answer.gaps) == pytest.approx([0.25] * 6)
