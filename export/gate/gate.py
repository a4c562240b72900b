"""Run a bundle beside the original program and report how far they are apart.

    report = run_gate(folder, GptReference(gpt), texts=[tokenizer_ids])
    if not report.passed:
        raise ParityError(report.summary())
    write_reference(folder, report)

What runs is what ships: gpt_onnx.runtime's engine on the bundle's own files.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpt_onnx.bundle import Manifest
from gpt_onnx.errors import InputError
from gpt_onnx.runtime import OnnxGPT, Sampling

from .bare import BareGraph
from .case import Case, Engine, Finding, Setting, Skipped
from .cases import LEVELS, Facts
from .clients import client_cases
from .decoding import decoding_cases
from .folders import without_folders
from .greedy import greedy_cases
from .nudged import COUNT
from .oracle import Oracle
from .original_file import Original, read_original
from .padding import padding_cases
from .reference import Draft, Reference, Refused
from .report import GateReport, Outcome
from .stored import reference_arrays
from .texts import texts_of
from .trial import Trial
from .turns import Turn, TurnEngine, Turns
from .variants import variant_cases
from .whole import kind_cases, length_cases, refusal_cases

Progress = Callable[[int, int], None]
"""Told how many cases are done and how many there are."""

CHECKS: Sequence[Callable[[Setting], Iterable[Case]]] = (
    length_cases,
    refusal_cases,
    kind_cases,
    padding_cases,
    decoding_cases,
    greedy_cases,
)
"""What every level looks at, in this order."""

NONE = Finding()
SMALL = 2**25
"""Parameters up to which a bundle stays loaded while its reference computes."""
SECOND_LOOKS = (1, COUNT)
"""Programs beside the original one that each further look takes: one shows what the order of sums costs, and
several what is luck."""


def _finding(case: Case, oracle: Oracle | None) -> Finding:
    """Run a case, and where it fails by little once more, with units that a lucky float32 cannot spoil."""
    finding = case.run()
    for beside in SECOND_LOOKS:
        if oracle is None or not finding.marginal:
            break
        with oracle.careful(beside):
            finding = replace(case.run(), beside=beside)
    return finding


def look_at(case: Case, oracle: Oracle | None = None, folder: str = "") -> Outcome:
    """Run one case; whatever it raises is a fault of the bundle, except a caller's own mistake.

    Args:
        case: The case.
        oracle: What takes a second look; None: nothing does.
        folder: The bundle's, to be left out of what is said: a report is the same wherever it is made.
    """
    known = [folder] if folder else []
    try:
        finding = _finding(case, oracle)
    except Skipped as exc:
        return Outcome(group=case.group, name=case.name, finding=NONE, skipped=str(exc))
    except Refused as exc:
        says = without_folders(str(exc), *known)
        return Outcome(
            group=case.group, name=case.name, finding=NONE, skipped=f"the original program says: {says}"
        )
    except Exception as exc:  # the engine, ONNX Runtime and numpy raise many kinds
        if isinstance(exc, InputError) and case.group == "original":
            raise
        finding = Finding(fault=without_folders(f"{type(exc).__name__}: {exc}", *known))
    return Outcome(group=case.group, name=case.name, finding=finding)


def look_at_all(
    cases: Sequence[Case], progress: Progress | None, oracle: Oracle | None = None, folder: str = ""
) -> Iterator[Outcome]:
    """Run cases one after another; warnings about long sequences are expected here. See ``look_at``."""
    for done, case in enumerate(cases):
        if progress is not None:
            progress(done, len(cases))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = look_at(case, oracle, folder)
        if outcome.finding.beside and not outcome.passed:  # the verdict is known; second looks are dear
            oracle = None
        yield outcome


def find_level(name: str) -> str:
    """Return the name if there is such a level.

    Raises:
        InputError: if there is none.
    """
    if name not in LEVELS:
        raise InputError(f"the level is {name!r}; known are {', '.join(LEVELS)}.")
    return name


def check_vocabulary(reference: Reference, facts: Facts) -> None:
    """See that the original program has as many tokens as the graph, before ids of one meet the other.

    Raises:
        InputError: if it has not.
    """
    try:
        size = reference.vocabulary(facts.within(1))
    except Refused:  # each case will say so
        return
    if size != facts.vocab_size:
        raise InputError(
            f"the bundle has a vocabulary of {facts.vocab_size} tokens and {reference.name} one of {size}; "
            "compare it with what it was made from."
        )


def setting_of(
    engine: Engine,
    facts: Facts,
    reference: Reference,
    level: str,
    texts: Sequence[Sequence[int]] | None,
    make_room: Callable[[], None] | None = None,
) -> Setting:
    """Gather what the cases share, and compute the long sequences once where one pass serves all prefixes.

    ``make_room`` is called before a reference of many parameters computes.

    Raises:
        InputError: if the level is unknown, or the program has fewer positions than the graph.
    """
    setting = Setting(
        engine=engine,
        oracle=Oracle(reference, facts.affordable(), make_room if facts.parameters > SMALL else None),
        facts=facts,
        level=LEVELS[find_level(level)],
        texts=texts,
    )
    try:
        held = [ids[: setting.longest_of(row)] for row, ids in enumerate(setting.sequences.values())]
        setting.oracle.hold(*held)
    except InputError as exc:
        raise InputError(
            f"{reference.name} does not take all that the bundle takes ({str(exc).partition(';')[0]}); "
            "compare the bundle with what it was made from."
        ) from exc
    return setting


def drafting(engine: Engine) -> Draft:
    """Return what guesses greedy tokens: those of the graph."""
    greedy = Sampling(temperature=0.0)
    return lambda ids, count: engine.generate([ids], count, greedy, ignore_eos=True)[0].ids


def report_of(
    setting: Setting, manifest: Manifest, outcomes: Iterable[Outcome], *, level: str, provider: str
) -> GateReport:
    """Gather what was found with what it was found on."""
    found, reference = tuple(outcomes), setting.oracle.reference
    its_numbers = any(outcome.group == "original" and outcome.skipped is None for outcome in found)
    paths = manifest.graph.paths
    return GateReport(
        level=level,
        provider=provider,
        reference=reference.name,
        cost=reference.cost,
        reference_dtype=reference.dtype,
        compared_with_original=reference.is_original or its_numbers,
        versions=manifest.versions,
        hashes={path: entry.sha256 for path, entry in manifest.files.items() if path in paths},
        outcomes=found,
    )


def cases_of(trial: Trial, reference: Reference) -> list[Case]:
    """Return all cases: those of every bundle, of its clients, of ways to run it, and the reference's own."""
    setting, engine = trial.setting, trial.bundle
    bare = Turn(open=partial(BareGraph, engine.bundle, engine.provider))
    return [
        *(case for check in CHECKS for case in check(setting)),
        *client_cases(setting, engine.bundle.manifest.graph.attention, partial(trial.turns.take, bare)),
        *variant_cases(setting, engine, trial.turns),
        *reference.own_cases(trial),
    ]


def _with_evidence(report: GateReport, setting: Setting) -> GateReport:
    """Add what lets any device check the bundle again; computed as carefully as the cases were."""
    with setting.oracle.careful(max((found.finding.beside for found in report.outcomes), default=0)):
        evidence = reference_arrays(setting.oracle, setting.facts, setting.texts, drafting(setting.engine))
    return replace(report, evidence=evidence)


def gate_engine(
    engine: OnnxGPT,
    reference: Reference,
    *,
    level: str = "standard",
    texts: Sequence[Sequence[int]] | None = None,
    reference_file: Path | None = None,
    progress: Progress | None = None,
) -> GateReport:
    """Compare a loaded bundle with the original program; see ``run_gate``.

    Raises:
        InputError: if the level is unknown, the vocabularies differ, or the reference file cannot be used.
    """
    bundle = engine.bundle
    facts = Facts.of(bundle.manifest, causal=reference.causal)
    check_vocabulary(reference, facts)
    original: Original | None = None
    if reference_file is not None:
        original = read_original(reference_file, facts, reference.padded_vocab_size)
    texts = texts_of(bundle) if texts is None else texts
    turns = Turns()
    ships: Turn[Engine] = Turn(open=lambda: engine, close=lambda _: engine.unload())
    turns.take(ships)
    setting = setting_of(TurnEngine(turns, ships), facts, reference, level, texts, turns.end)
    with ExitStack() as stack:
        trial = Trial(setting=setting, bundle=engine, original=original, turns=turns, stack=stack)
        cases = cases_of(trial, reference)
        outcomes = list(look_at_all(cases, progress, setting.oracle, str(bundle.path)))
    if progress is not None:
        progress(len(cases), len(cases))
    report = report_of(setting, bundle.manifest, outcomes, level=level, provider=engine.provider)
    return _with_evidence(report, setting) if report.passed else report


def run_gate(
    path: Path,
    reference: Reference,
    *,
    level: str = "standard",
    provider: str = "cpu",
    threads: int | None = None,
    texts: Sequence[Sequence[int]] | None = None,
    reference_file: Path | None = None,
    progress: Progress | None = None,
) -> GateReport:
    """Compare a bundle with the original program.

    Args:
        path: The bundle, sealed.
        reference: The original program.
        level: "quick", "standard" or "deep".
        provider: Where the bundle runs; the report says which device it was.
        threads: Threads within an operator; None: the cores that this process may use.
        texts: Ids of real text, one sequence each; None: a few paragraphs, where the bundle has a tokenizer.
        reference_file: Numbers that the original program wrote, to compare with as well.
        progress: See Progress.

    Returns:
        The report, whether it passed or not.

    Raises:
        InputError: if the level is unknown, the vocabularies differ, or the reference file cannot be used.
        BundleError: if the bundle cannot be loaded.
        ProviderError: if the provider cannot be had.
    """
    find_level(level)
    engine = OnnxGPT.load(path, provider=provider, threads=threads)
    return gate_engine(
        engine, reference, level=level, texts=texts, reference_file=reference_file, progress=progress
    )
