"""From the turns of all contenders to the record of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .agreement import agree
from .contender import Burst
from .machine_memory import nearest_size
from .plan import BenchPlan, Point
from .report import ContenderReport, MemorySpeed, PromptReport, Versus
from .runner import Runner
from .statistics import Paired, Summary
from .traffic import Traffic, step_bytes


def _step_bytes(runner: Runner, point: Point, new_tokens: int) -> float | None:
    facts = runner.facts
    return step_bytes(facts.weight_bytes, facts.cache_bytes_per_token, point, new_tokens)


def step_sizes(runners: Sequence[Runner], points: Iterable[Point], new_tokens: int) -> set[float]:
    """Return the bytes that steps read, of all contenders of which it is known."""
    sizes = {_step_bytes(runner, point, new_tokens) for runner in runners for point in points}
    return {size for size in sizes if size is not None}


def _medians(bursts: Sequence[Burst]) -> tuple[float, ...]:
    return tuple(Summary.of(burst.step_ms).median for burst in bursts)


def _first(bursts: Sequence[Burst]) -> tuple[float, ...]:
    return tuple(burst.ttft_ms for burst in bursts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summariser:
    """What the reports of all contenders need."""

    plan: BenchPlan
    baseline: Runner | None
    memory: Sequence[MemorySpeed]

    def versus(self, runner: Runner, point: Point) -> Versus | None:
        if self.baseline is None or runner is self.baseline or point not in self.baseline.bursts:
            return None
        theirs, ours = self.baseline.bursts[point], runner.bursts[point]
        return Versus(
            decode=Paired.of(_medians(theirs), _medians(ours)),
            ttft=Paired.of(_first(theirs), _first(ours)),
            tokens=agree(runner.answers[point], self.baseline.answers[point]),
        )

    def traffic(self, runner: Runner, point: Point, step_ms: float) -> Traffic | None:
        size = _step_bytes(runner, point, self.plan.new_tokens)
        if size is None:
            return None
        speeds = {speed.array_bytes: speed.gb_per_s for speed in self.memory}
        own, possible = size / 1e6 / step_ms, speeds.get(nearest_size(size, max(speeds, default=1)))
        return Traffic(step_bytes=size, gb_per_s=own, share=None if possible is None else own / possible)

    def point(self, runner: Runner, point: Point) -> PromptReport:
        bursts = runner.bursts[point]
        steps = Summary.of(step for burst in bursts for step in burst.step_ms)
        return PromptReport(
            prompt_tokens=point.prompt_tokens,
            batch_size=point.batch_size,
            ttft_ms=Summary.of(_first(bursts)),
            step_ms=steps,
            decode_tokens_per_s=1e3 * point.batch_size / steps.median,
            ttft_rounds_ms=_first(bursts),
            step_rounds_ms=_medians(bursts),
            traffic=self.traffic(runner, point, steps.median),
            versus=self.versus(runner, point),
        )

    def contender(self, runner: Runner) -> ContenderReport:
        runner.learn()  # some are known at the end only
        return ContenderReport(
            name=runner.name,
            kind=runner.kind,
            source=runner.entrant.source,
            device=runner.facts.device,
            versions=runner.facts.versions,
            details=runner.facts.details,
            file_bytes=runner.facts.file_bytes,
            kl=runner.facts.kl,
            start_ms=Summary.of(runner.starts_ms),
            load_ms=Summary.of(runner.loads_ms),
            resident_bytes=runner.resident_bytes,
            peak_resident_bytes=runner.ask("memory")["peak_resident_bytes"],
            prompts=[self.point(runner, point) for point in runner.bursts],
        )


def summarise(
    runners: Sequence[Runner], plan: BenchPlan, baseline: str | None, memory: Sequence[MemorySpeed]
) -> list[ContenderReport]:
    """Ask every process for what is known at the end, and make the records."""
    found = next((runner for runner in runners if runner.name == baseline), None)
    make = _Summariser(plan=plan, baseline=found, memory=memory)
    return [make.contender(runner) for runner in runners if runner.bursts]
