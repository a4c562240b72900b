"""From names to a report: who takes part, what all must have in common, the measurement, the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpt_onnx.errors import InputError
from gpt_onnx.runtime._threads import thread_count

from .entrant import BUNDLE, EAGER, PEER, Entrant
from .entrants import bundle_entrants, check_names, pytorch_entrants
from .environment import Environment, describe
from .machine_memory import MachineMemory
from .plan import BenchPlan, Point, fit_prompts
from .report import BenchReport
from .runner import Runner
from .summary import step_sizes, summarise
from .turns import Progress, Turns, closing


def _only(runners: Sequence[Runner], fact: str, remedy: str) -> Any:
    """Return what all contenders must have in common; a contender that does not know says None.

    Raises:
        InputError: if two differ.
    """
    known = [(runner.name, value) for runner in runners if (value := getattr(runner.facts, fact)) is not None]
    for name, value in known[1:]:
        if value != known[0][1]:
            raise InputError(f"{fact} is {known[0][1]} for {known[0][0]} and {value} for {name}; {remedy}.")
    return known[0][1]


def _baseline(entrants: Sequence[Entrant], name: str | None) -> str | None:
    """Return whom the others are compared with: as asked, or eager PyTorch, or the first; None if alone."""
    names = [entrant.name for entrant in entrants]
    if name is None:
        eager = next((entrant.name for entrant in entrants if entrant.kind == EAGER), None)
        return eager or (names[0] if len(names) > 1 else None)
    if name not in names:
        raise InputError(f"the baseline is {name!r} and takes no part; choose one of {', '.join(names)}.")
    return name


def _prompts(runners: Sequence[Runner], plan: BenchPlan) -> tuple[dict[Point, list[list[int]]], list[str]]:
    """Return the prompts that all can take, and what was cut."""
    _only(runners, "device", "name one for all with --provider")
    vocab_size = _only(runners, "vocab_size", "compare models of one vocabulary")
    lengths, notes = fit_prompts(
        plan,
        [runner.facts.limit for runner in runners],
        [runner.facts.context_length for runner in runners],
    )
    return {point: plan.rows(point, vocab_size) for point in plan.points(lengths)}, notes


def _with_versions(environment: Environment, runners: Sequence[Runner]) -> Environment:
    """Add the versions of what ran under this Python; a peer's are its own."""
    ours = [runner.facts.versions for runner in runners if runner.kind != PEER]
    versions = {name: version for known in ours for name, version in known.items()}
    return replace(environment, versions={**environment.versions, **versions})


def _measure(
    entrants: Sequence[Entrant], plan: BenchPlan, baseline: str | None, progress: Progress
) -> BenchReport:
    assert plan.threads is not None
    environment = describe(plan.threads)  # the load average is that of the time before
    turns, memory = Turns([Runner(entrant=one) for one in entrants], plan, progress), MachineMemory()
    first = turns.runners[0]
    with closing([*turns.runners, memory.runner]):
        # PyTorch and peers go where the first bundle went.
        turns.start(lambda runner: plan.provider if runner.kind == BUNDLE else first.facts.device)
        prompts, notes = _prompts(turns.runners, plan)
        turns.answer(prompts)
        if plan.bandwidth and first.facts.device == "cpu":
            memory.start(step_sizes(turns.runners, prompts, plan.new_tokens), plan.threads)
        turns.burst(prompts, memory.read)
        speeds = memory.speeds()
        contenders = summarise(turns.runners, plan, baseline, speeds)
    own_notes = [note for runner in turns.runners for note in runner.facts.notes]
    return BenchReport(
        plan=plan,
        environment=_with_versions(environment, turns.runners),
        contenders=contenders,
        notes=environment.notes + notes + own_notes,
        baseline=None if baseline in turns.failures else baseline,
        memory=speeds,
        failures=turns.failures,
    )


def bench(
    bundles: Sequence[str | Path],
    *,
    against: str | Path | None = None,
    config: str | Path | None = None,
    names: str | Path | None = None,
    compiled: bool = False,
    peers: Sequence[Entrant] = (),
    baseline: str | None = None,
    plan: BenchPlan | None = None,
    progress: Progress = lambda done, total: None,
) -> BenchReport:
    """Measure bundles, and the PyTorch program of ``against`` beside them.

    Args:
        bundles: Folders of bundles of one vocabulary.
        against: A checkpoint, or FILE.py:NAME; needs torch.
        config: A configuration of an ``against`` that does not tell its own.
        names: A table of its names of tensors.
        compiled: Also measure ``against`` with its step compiled by torch.compile.
        peers: Contenders of anybody's, see read_peers.
        baseline: The name of the contender that the others are compared with; None: eager PyTorch, if it
            takes part, else the first bundle.
        plan: What to measure.
        progress: Called after every turn.

    Raises:
        InputError: if there is no bundle, they do not fit together, or a prompt cannot fit.
        BundleError, CheckpointError, ProviderError: if a contender cannot be loaded; a peer that cannot is
            noted instead.
    """
    plan = plan or BenchPlan()
    plan = replace(plan, threads=thread_count(plan.threads))
    files: Mapping[str, str | Path | None] = {"config": config, "names": names}
    described = {name: str(file) for name, file in files.items() if file is not None}
    if not bundles:
        raise InputError("there is no bundle to measure; name at least one.")
    entrants = [
        *bundle_entrants(bundles),
        *pytorch_entrants(against, described, compiled=compiled),
        *peers,
    ]
    check_names(entrants)
    return _measure(entrants, plan, _baseline(entrants, baseline), progress)
