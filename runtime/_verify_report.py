"""What ``verify_bundle`` found, in a sentence and as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx.bundle import Manifest
from gpt_onnx.errors import ParityError

from ._arguments import counted


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One stored sequence, computed again."""

    name: str
    tokens: int
    """Its length."""
    logits: int
    """How many of its logits were compared."""
    max_ratio: float
    """Largest error, as a part of what is accepted: above 1 fails; infinite where a logit is not finite."""
    rms_ratio: float
    """The same of the root mean square."""

    @property
    def passed(self) -> bool:
        """Whether both are within their bounds; NaN is not."""
        return self.max_ratio <= 1 and self.rms_ratio <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyResult:
    """The stored greedy tokens, generated again."""

    tokens: int
    """How many are stored."""
    compared: int
    """How many were compared: those up to the first near tie that went the other way."""
    differs_at: int | None
    """The first token that differs though it should not; None: none."""

    @property
    def passed(self) -> bool:
        """Whether no token differs that should not."""
        return self.differs_at is None

    @property
    def told(self) -> str:
        """How many were compared, and why no more."""
        tie = " up to a near tie" if self.compared < self.tokens else ""
        return f"{counted(self.compared, 'greedy token')}{tie}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was checked and what was found; damaged files and graphs raise a BundleError instead."""

    path: Path
    manifest: Manifest
    provider: str | None
    """Where the numbers were computed; None: they were not."""
    runtime_version: str | None
    """Version of ONNX Runtime."""
    cases: tuple[CaseResult, ...] = ()
    greedy: GreedyResult | None = None

    @property
    def computed(self) -> bool:
        """Whether numbers were compared."""
        return bool(self.cases) or self.greedy is not None

    @property
    def passed(self) -> bool:
        """Whether everything that was compared agrees."""
        return all(case.passed for case in self.cases) and (self.greedy is None or self.greedy.passed)

    def summary(self) -> str:
        """Say in one sentence what was found."""
        graphs = "both graphs" if len(self.manifest.graph.graphs) > 1 else "the graph"
        files = f"{counted(len(self.manifest.files), 'file')} and {graphs} are in order"
        if not self.computed:
            why = (
                "the numbers were not computed" if self.provider is None else "it stores no reference logits"
            )
            return f"{self.path}: {files}; {why}."
        if not self.passed:
            return f"{self.path}: {self._fault()}; run it elsewhere, or export it again."
        worst = max((case.max_ratio for case in self.cases), default=0.0)
        logits = f"{sum(case.logits for case in self.cases):,} logits"
        greedy = f" and {self.greedy.told}" if self.greedy else ""
        weights = (
            "" if self.manifest.precision == "fp32" else f" with the same {self.manifest.precision} weights"
        )
        return (
            f"{self.path}: {files}, and {logits}{greedy} agree with PyTorch{weights} on {self.provider}; "
            f"the largest error is {worst:.0%} of what is accepted."
        )

    def _fault(self) -> str:
        failed = [case for case in self.cases if not case.passed]
        if failed:
            worst = max(failed, key=lambda case: max(case.max_ratio, case.rms_ratio))
            return (
                f"{len(failed)} of {len(self.cases)} stored sequences differ on {self.provider}; the error "
                f"of {worst.name} ({counted(worst.tokens, 'token')}) is {worst.max_ratio:.3g} times "
                f"what is accepted, its RMS {worst.rms_ratio:.3g} times"
            )
        at = self.greedy.differs_at if self.greedy else None
        return f"greedy token {at} differs on {self.provider} from the one that PyTorch chose"

    def raise_if_failed(self) -> None:
        """Turn a failure into an exception.

        Raises:
            ParityError: if the numbers differ.
        """
        if not self.passed:
            raise ParityError(self.summary())

    def to_json(self) -> dict[str, Any]:
        """Return what ``gpt-onnx verify --json`` prints."""
        return {
            "path": str(self.path),
            "name": self.manifest.name,
            "passed": self.passed,
            "checked": self.manifest.checked,
            "compared_with_original": self.manifest.compared_with_original,
            "files": len(self.manifest.files),
            "provider": self.provider,
            "onnxruntime": self.runtime_version,
            "cases": [
                {
                    "name": case.name,
                    "tokens": case.tokens,
                    "logits": case.logits,
                    "max_ratio": _finite(case.max_ratio),
                    "rms_ratio": _finite(case.rms_ratio),
                    "passed": case.passed,
                }
                for case in self.cases
            ],
            "greedy": None
            if self.greedy is None
            else {
                "tokens": self.greedy.tokens,
                "compared": self.greedy.compared,
                "differs_at": self.greedy.differs_at,
                "passed": self.greedy.passed,
            },
        }
