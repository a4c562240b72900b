"""Measure contenders in turn.

1. Starts: each contender's process is started several times, all contenders in each round; the last is kept.
2. Answers: each generates once at every point, without a clock. This warms up everything, and the tokens are
   compared.
3. Bursts: in every round, at every point, each contender has one short turn; the order moves on by one from
   round to round.

A peer that fails is left out from then on, at that point or altogether, and why is noted; any other failure
ends the measurement.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from gpt_onnx.errors import GptOnnxError
from gpt_onnx.runtime._arguments import counted

from .entrant import PEER
from .plan import BenchPlan, Point
from .runner import Runner

Progress = Callable[[int, int], None]
"""Told how many turns are done and how many there are."""
Prompts = Mapping[Point, list[list[int]]]


@contextlib.contextmanager
def closing(runners: Sequence[Runner]) -> Iterator[None]:
    """End all processes at the end; at once, if it comes by an exception."""
    failed = True
    try:
        yield
        failed = False
    finally:
        for runner in runners:
            runner.close(kill=failed)  # a burst may take long, and Ctrl-C must not


class Turns:
    """The measurement of some runners after a plan, whose ``threads`` are known.

    ``runners`` are those that are still in; ``failures`` says of which peer what could not be measured.
    """

    def __init__(self, runners: Sequence[Runner], plan: BenchPlan, progress: Progress) -> None:
        self.runners = list(runners)
        self.failures: dict[str, str] = {}
        self._plan, self._progress, self._done = plan, progress, 0
        points = len(set(plan.prompt_tokens)) * len(set(plan.batch_sizes))
        self._total = (plan.starts + points * (1 + plan.repetitions)) * len(runners)

    def _take(self, runner: Runner, turn: Callable[[], None], point: Point | None = None) -> None:
        """Let one runner have a turn, and tell that it is over."""
        try:
            turn()
        except GptOnnxError as exc:
            if runner.kind != PEER:
                raise
            self._fail(runner, point, str(exc))
        self._done += 1
        self._progress(min(self._done, self._total), self._total)

    def _fail(self, runner: Runner, point: Point | None, why: str) -> None:
        """Leave a peer out: at one point, if it answers still; otherwise altogether."""
        if point is not None and runner.is_alive:
            runner.skipped.add(point)
            runner.bursts.pop(point, None)
            rows = counted(point.batch_size, "sequence")
            self.failures[f"{runner.name}, {rows} of {point.prompt_tokens} tokens"] = why
            return
        runner.close(kill=True)
        self.runners.remove(runner)
        self.failures[runner.name] = why

    def start(self, device_of: Callable[[Runner], str]) -> None:
        """Load every contender, several times."""
        for _ in range(self._plan.starts):
            for runner in list(self.runners):
                self._take(runner, partial(self._load, runner, device_of))

    def _load(self, runner: Runner, device_of: Callable[[Runner], str]) -> None:
        assert self._plan.threads is not None
        runner.load(device_of(runner), self._plan.threads)

    def answer(self, prompts: Prompts) -> None:
        """Generate once without a clock."""
        for point, rows in prompts.items():
            for runner in list(self.runners):
                self._take(runner, partial(runner.answer, point, rows, self._plan.new_tokens), point)

    def burst(self, prompts: Prompts, after_round: Callable[[], None] = lambda: None) -> None:
        """Take turns."""
        for turn in range(self._plan.repetitions):
            for point, rows in prompts.items():
                able = [runner for runner in self.runners if point not in runner.skipped]
                first = turn % len(able)
                for runner in [*able[first:], *able[:first]]:
                    self._take(runner, partial(runner.burst, point, rows, self._plan.new_tokens), point)
            after_round()
