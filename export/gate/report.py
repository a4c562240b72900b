"""What a gate found: a short table for people, and for ``parity.json`` all that can be repeated elsewhere.

No times, no paths and no host names: one machine with one set of versions writes the same bytes again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from .case import EXACT_PRODUCTS, Finding
from .cases import SEED
from .nudged import COUNT, SIZE
from .reference import FLOAT32
from .tolerance import FLOOR, MAX_FACTOR, RMS_FACTOR, Ratio

FORMAT_VERSION = 1


def rounded(value: float) -> float | None:
    """Return three significant digits; None for what JSON has no number for."""
    return float(f"{value:.3g}") if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case and what it found."""

    group: str
    name: str
    finding: Finding
    skipped: str | None = None
    """Why the case could not be looked at: the original program's own words."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong; a skipped case says nothing."""
        return self.skipped is not None or self.finding.passed

    def to_json(self) -> dict[str, Any]:
        """Return what ``parity.json`` holds of it."""
        ratio, entry = self.finding.ratio, {"group": self.group, "name": self.name, "passed": self.passed}
        if self.skipped is not None:
            return entry | {"skipped": self.skipped}
        numbers = {} if ratio is None else {"ratio": rounded(ratio.peak), "rms_ratio": rounded(ratio.rms)}
        ties = {"near_ties": self.finding.near_ties} if self.finding.near_ties else {}
        fault = {"fault": self.finding.fault} if self.finding.fault else {}
        careful = {"careful_unit": True} if self.finding.beside else {}
        return entry | numbers | ties | fault | careful

    def sentence(self, cost: str = FLOAT32) -> str:
        """Say in one clause what is wrong.

        Args:
            cost: What a unit is.
        """
        ratio = self.finding.ratio
        if self.finding.fault or ratio is None:
            return f"{self.group}: {self.name}: {(self.finding.fault or '').rstrip('.')}"
        if not math.isfinite(ratio.peak):
            return f"{self.group}: {self.name}: the graph's numbers are not finite, or of another shape"
        return (
            f"{self.group}: {self.name}: the error is {ratio.peak:.3g} times what {cost} costs (at "
            f"most {MAX_FACTOR:g}), its RMS {ratio.rms:.3g} times (at most {RMS_FACTOR:g})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a group of cases."""

    group: str
    cases: int
    skipped: int
    failed: int
    median: float | None
    """Median of the max-ratios; None where the group compares no numbers."""
    worst: float | None
    worst_rms: float | None

    @classmethod
    def of(cls, group: str, outcomes: Sequence[Outcome]) -> Row:
        """Sum up the outcomes of a group."""
        ratios = ratios_of(outcomes)
        return cls(
            group=group,
            cases=len(outcomes),
            skipped=sum(outcome.skipped is not None for outcome in outcomes),
            failed=sum(not outcome.passed for outcome in outcomes),
            median=statistics.median(ratio.peak for ratio in ratios) if ratios else None,
            worst=max(ratio.peak for ratio in ratios) if ratios else None,
            worst_rms=max(ratio.rms for ratio in ratios) if ratios else None,
        )


def ratios_of(outcomes: Sequence[Outcome]) -> list[Ratio]:
    """Return the ratios of those cases that compare numbers."""
    return [o.finding.ratio for o in outcomes if o.finding.ratio is not None and o.skipped is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    """All that a gate found."""

    level: str
    provider: str
    reference: str
    """What the original program is."""
    cost: str = FLOAT32
    """What a unit is, but for cases that say otherwise."""
    reference_dtype: str
    compared_with_original: bool
    """Whether the reference is the program that was trained, or numbers that this wrote were compared too."""
    versions: Mapping[str, str]
    hashes: Mapping[str, str]
    """SHA-256 of each graph and weight file that ran."""
    outcomes: tuple[Outcome, ...]
    evidence: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)
    """What ``reference.safetensors`` holds (gpt_onnx.export.gate.stored); empty where the gate failed."""

    @property
    def passed(self) -> bool:
        """Whether every case that ran passed, and at least one ran."""
        ran = [outcome for outcome in self.outcomes if outcome.skipped is None]
        return bool(ran) and all(outcome.passed for outcome in ran)

    def summary(self) -> str:
        """Say in one sentence what was found; of failures, the worst."""
        failed = [outcome for outcome in self.outcomes if not outcome.passed]
        if not failed:
            return self._success()
        first = max(failed, key=lambda o: o.finding.ratio.severity if o.finding.ratio else 0.0)
        return (
            f"{len(failed)} of {len(self.outcomes)} cases differ from {self.reference}; "
            f"{first.sentence(FLOAT32 if first.group == EXACT_PRODUCTS else self.cost)}."
        )

    def _success(self) -> str:
        total = self.total
        if not self.passed:
            return f"no case could be looked at: {self.reference} itself refuses all of them."
        exact, others = (
            Row.of("", [o for o in self.outcomes if (o.group == EXACT_PRODUCTS) is kind])
            for kind in (True, False)
        )
        numbers = (
            ""
            if others.worst is None
            else f"; the largest error is {others.worst:.2g} times what {self.cost} costs"
        )
        if exact.worst is not None:
            numbers += f", with exact products {exact.worst:.2g} times what {FLOAT32} does"
        return f"{total.cases - total.skipped} cases agree with {self.reference}{numbers}."

    @property
    def rows(self) -> list[Row]:
        """One row a group, in the order in which they ran."""
        groups = dict.fromkeys(outcome.group for outcome in self.outcomes)
        return [Row.of(group, [o for o in self.outcomes if o.group == group]) for group in groups]

    @property
    def total(self) -> Row:
        """All groups as one row."""
        return Row.of("all", self.outcomes)

    def _rule(self) -> dict[str, str]:
        """Say what F32 is, where it is not plain float32."""
        if self.cost == FLOAT32:
            return {}
        return {"f32": f"the program in {self.cost}; in cases of {EXACT_PRODUCTS}, in {FLOAT32} alone"}

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``parity.json``."""
        total = self.total
        return {
            "format_version": FORMAT_VERSION,
            "passed": self.passed,
            "level": self.level,
            "provider": self.provider,
            "compared_with_original": self.compared_with_original,
            "reference": {"name": self.reference, "dtype": self.reference_dtype},
            "tolerance": self._rule()
            | {
                "unit": "max(max|F32 - R64|, floor * max|R64|), and the same of root mean squares",
                "floor": FLOOR,
                "max_factor": MAX_FACTOR,
                "rms_factor": RMS_FACTOR,
                "careful_unit": f"the largest over F32 and up to {COUNT} programs with weights {SIZE:g} away",
            },
            "seed": SEED,
            "versions": dict(sorted(self.versions.items())),
            "sha256": dict(sorted(self.hashes.items())),
            "summary": {
                "cases": total.cases,
                "skipped": total.skipped,
                "failed": total.failed,
                "median_ratio": None if total.median is None else rounded(total.median),
                "worst_ratio": None if total.worst is None else rounded(total.worst),
                "worst_rms_ratio": None if total.worst_rms is None else rounded(total.worst_rms),
                "near_ties": sum(outcome.finding.near_ties for outcome in self.outcomes),
            },
            "cases": [outcome.to_json() for outcome in self.outcomes],
        }
