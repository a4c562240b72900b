"""Measure contenders in turn.

1. Starts: each contender's process is started several times, all contenders in each round; the last is kept.
2. Answers: each generates once from every prompt, without a clock. This warms up everything, and the tokens
   are compared.
3. Bursts: in every round, at every length of prompt, each contender has one short turn; the order moves on
   by one from round to round.
4. Memory: each process's peak.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpt_onnx.errors import InputError, ProviderError
from gpt_onnx.runtime._threads import thread_count

from .agreement import agree
from .contender import Answer, Burst
from .environment import describe
from .plan import BenchPlan, fit_prompts
from .report import BUNDLE, EAGER, BenchReport, ContenderReport, PromptReport, Versus
from .statistics import Paired, Summary
from .worker import Worker

MODULES: Mapping[str, str] = {
    BUNDLE: "gpt_onnx.runtime.bench.bundle_contender",
    EAGER: "gpt_onnx.eager",
}
"""The program of each kind of contender."""
EAGER_NAME = "eager PyTorch"

Progress = Callable[[int, int], None]
"""Told how many turns are done and how many there are."""


@dataclass(slots=True, kw_only=True)
class Runner:
    """A contender on its way."""

    name: str
    kind: str
    source: str
    described: Mapping[str, str] = field(default_factory=dict)
    """Files that describe the source: "config" and "names"."""
    worker: Worker | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    starts_ms: list[float] = field(default_factory=list)
    loads_ms: list[float] = field(default_factory=list)
    resident_bytes: int | None = None
    answers: dict[int, Answer] = field(default_factory=dict)
    """By length of prompt."""
    bursts: dict[int, list[Burst]] = field(default_factory=dict)
    """By length of prompt, one a round."""

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Pass an order to the process."""
        assert self.worker is not None
        return self.worker.ask(order)

    def load(self, device: str, threads: int) -> None:
        """Start a fresh process and have it load."""
        before = time.perf_counter()
        self.worker = Worker(MODULES[self.kind])
        order = {"do": "load", "source": self.source, "device": device, "threads": threads}
        loaded = self.ask({**order, **self.described})
        self.starts_ms.append(1e3 * (time.perf_counter() - before))
        self.loads_ms.append(loaded["load_ms"])
        self.facts, self.resident_bytes = loaded["facts"], loaded["resident_bytes"]

    def close(self, *, kill: bool = False) -> None:
        """End the process, if there is one; at once, if it is to be killed."""
        if self.worker is not None:
            self.worker.close(kill=kill)
            self.worker = None


def _runners(
    bundles: Sequence[str | Path], against: str | Path | None, described: Mapping[str, str]
) -> list[Runner]:
    names = [Path(bundle).resolve().name for bundle in bundles]
    runners = [
        Runner(name=name if names.count(name) == 1 else str(bundle), kind=BUNDLE, source=str(bundle))
        for name, bundle in zip(names, bundles, strict=True)
    ]
    if not runners:
        raise InputError("there is no bundle to measure; name at least one.")
    if against is not None:
        if importlib.util.find_spec("torch") is None:
            raise ProviderError(
                "eager PyTorch needs torch; install it with pip install 'gpt-onnx[cpu,export]'."
            )
        runners.append(Runner(name=EAGER_NAME, kind=EAGER, source=str(against), described=described))
    return runners


def _only(runners: Sequence[Runner], fact: str, remedy: str) -> Any:
    """Return what all contenders must have in common; a contender that does not know says None.

    Raises:
        InputError: if two differ.
    """
    known = [runner for runner in runners if runner.facts[fact] is not None]
    for runner in known[1:]:
        if runner.facts[fact] != known[0].facts[fact]:
            raise InputError(
                f"{fact} is {known[0].facts[fact]} for {known[0].name} and {runner.facts[fact]} for "
                f"{runner.name}; {remedy}."
            )
    return known[0].facts[fact]


@contextlib.contextmanager
def _closing(runners: Sequence[Runner]) -> Iterator[None]:
    failed = True
    try:
        yield
        failed = False
    finally:
        for runner in runners:
            runner.close(kill=failed)  # a burst may take long, and Ctrl-C must not


class Comparison:
    """The measurement of some runners after a plan, whose ``threads`` are known."""

    def __init__(self, runners: Sequence[Runner], plan: BenchPlan, progress: Progress) -> None:
        self._runners, self._plan, self._progress = runners, plan, progress
        self._done = 0
        turns = plan.starts + len(plan.prompt_tokens) * (1 + plan.repetitions)
        self._total = turns * len(runners)

    def _tick(self) -> None:
        self._done += 1
        self._progress(min(self._done, self._total), self._total)

    def start(self) -> None:
        """Load every contender, several times; PyTorch goes where the first bundle went."""
        assert self._plan.threads is not None
        for _ in range(self._plan.starts):
            for runner in self._runners:
                runner.close()
                device = self._plan.provider if runner.kind == BUNDLE else self._runners[0].facts["device"]
                runner.load(device, self._plan.threads)
                self._tick()

    def answer(self, prompts: Mapping[int, list[list[int]]]) -> None:
        """Generate once without a clock."""
        for length, rows in prompts.items():
            for runner in self._runners:
                order = {"do": "answer", "rows": rows, "new_tokens": self._plan.new_tokens}
                runner.answers[length] = Answer(**runner.ask(order))
                self._tick()

    def burst(self, prompts: Mapping[int, list[list[int]]]) -> None:
        """Take turns."""
        for turn in range(self._plan.repetitions):
            first = turn % len(self._runners)
            for length, rows in prompts.items():
                for runner in (*self._runners[first:], *self._runners[:first]):
                    order = {"do": "burst", "rows": rows, "new_tokens": self._plan.new_tokens}
                    runner.bursts.setdefault(length, []).append(Burst(**runner.ask(order)))
                    self._tick()


def _medians(bursts: Sequence[Burst]) -> list[float]:
    return [Summary.of(burst.step_ms).median for burst in bursts]


def _versus(runner: Runner, eager: Runner | None, length: int) -> Versus | None:
    if eager is None or runner is eager:
        return None
    theirs, ours = eager.bursts[length], runner.bursts[length]
    return Versus(
        decode=Paired.of(_medians(theirs), _medians(ours)),
        ttft=Paired.of([burst.ttft_ms for burst in theirs], [burst.ttft_ms for burst in ours]),
        tokens=agree(runner.answers[length], eager.answers[length]),
    )


def _prompt_report(runner: Runner, eager: Runner | None, length: int, batch_size: int) -> PromptReport:
    steps = Summary.of(step for burst in runner.bursts[length] for step in burst.step_ms)
    return PromptReport(
        prompt_tokens=length,
        ttft_ms=Summary.of(burst.ttft_ms for burst in runner.bursts[length]),
        step_ms=steps,
        decode_tokens_per_s=1e3 * batch_size / steps.median,
        versus_eager=_versus(runner, eager, length),
    )


def _contender_report(runner: Runner, eager: Runner | None, batch_size: int) -> ContenderReport:
    return ContenderReport(
        name=runner.name,
        kind=runner.kind,
        source=runner.source,
        device=runner.facts["device"],
        details=runner.facts["details"],
        start_ms=Summary.of(runner.starts_ms),
        load_ms=Summary.of(runner.loads_ms),
        resident_bytes=runner.resident_bytes,
        peak_resident_bytes=runner.ask({"do": "memory"})["peak_resident_bytes"],
        prompts=[_prompt_report(runner, eager, length, batch_size) for length in runner.bursts],
    )


def bench(
    bundles: Sequence[str | Path],
    *,
    against: str | Path | None = None,
    config: str | Path | None = None,
    names: str | Path | None = None,
    plan: BenchPlan | None = None,
    progress: Progress = lambda done, total: None,
) -> BenchReport:
    """Measure bundles and, if ``against`` names their source, the same weights in eager PyTorch.

    Args:
        bundles: Folders of bundles of one vocabulary.
        against: A checkpoint, or FILE.py:NAME; needs torch.
        config: A configuration of an ``against`` that does not tell its own.
        names: A table of its names of tensors.
        plan: What to measure.
        progress: Called after every turn.

    Raises:
        InputError: if there is no bundle, they do not fit together, or a prompt cannot fit.
        BundleError, CheckpointError, ProviderError: if a contender cannot be loaded.
    """
    plan = plan or BenchPlan()
    plan = replace(plan, threads=thread_count(plan.threads))
    assert plan.threads is not None
    files = {"config": config, "names": names}
    described = {name: str(file) for name, file in files.items() if file is not None}
    runners = _runners(bundles, against, described)
    environment = describe(plan.threads)  # the load average is that of the time before
    with _closing(runners):
        comparison = Comparison(runners, plan, progress)
        comparison.start()
        _only(runners, "device", "name one for all with --provider")
        vocab_size = _only(runners, "vocab_size", "compare models of one vocabulary")
        lengths, notes = fit_prompts(
            plan,
            [runner.facts["limit"] for runner in runners],
            [runner.facts.get("context_length") for runner in runners],
        )
        prompts = {length: plan.rows(length, vocab_size) for length in lengths}
        comparison.answer(prompts)
        comparison.burst(prompts)
        eager = next((runner for runner in runners if runner.kind == EAGER), None)
        contenders = [_contender_report(runner, eager, plan.batch_size) for runner in runners]
    versions = {name: version for runner in runners for name, version in runner.facts["versions"].items()}
    return BenchReport(
        plan=plan,
        environment=replace(environment, versions={**environment.versions, **versions}),
        contenders=contenders,
        notes=environment.notes + notes + [note for runner in runners for note in runner.facts["notes"]],
    )
