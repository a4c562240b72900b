"""Check a bundle on this machine, without PyTorch: its files, its graphs, and the numbers that they compute.

    report = verify_bundle("bundle")
    report.passed, report.summary()

The bundle carries logits that the original program computed in float64, with the largest error that the gate
accepted; they are computed again here, on this provider, and held to the same bounds. A bundle made without
the gate has none, and then only files and graphs are checked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.bundle import Manifest, check_graph, open_bundle
from gpt_onnx.errors import BundleError, ParityError

from ._arguments import counted
from ._bundle_tokenizer import check_tokenizer
from ._checks import LengthWarning, as_ids
from ._reference import FILE_NAME, StoredCase, StoredGreedy, read_reference
from .engine import OnnxGPT
from .providers import AUTO
from .sampling import Sampling

Progress = Callable[[int, int], None]


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
        greedy = f" and {counted(self.greedy.compared, 'greedy token')}" if self.greedy else ""
        weights = (
            "" if self.manifest.quantization is None else f" with the same {self.manifest.precision} weights"
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _part(error: float, bound: float) -> float:
    """Return an error as a part of its bound; infinite where either makes no sense."""
    if not (math.isfinite(error) and math.isfinite(bound)):
        return math.inf
    if error == 0:
        return 0.0
    return error / bound if bound > 0 else math.inf


def _logits_at(engine: OnnxGPT, case: StoredCase) -> NDArray[np.float32]:
    """Return the logits of a case (n, V).

    A cache of any length is filled from position to position, which needs the memory of one row of logits;
    other graphs compute the whole sequence. Where the last position alone is stored, no other is asked for:
    there are graphs that have no other.
    """
    only_last = case.positions.tolist() == [case.input_ids.size - 1]
    if engine.bundle.manifest.graph.layout != "dynamic" and not only_last:
        logits: NDArray[np.float32] = engine.logits([case.input_ids])[0]
        return logits[case.positions]
    decoder = engine.decoder(1, case.input_ids.size)
    starts = [0, *(case.positions[:-1] + 1)]
    pieces = [case.input_ids[start : end + 1] for start, end in zip(starts, case.positions, strict=True)]
    return np.stack([decoder.append([piece])[0] for piece in pieces])


def _verify_case(engine: OnnxGPT, case: StoredCase) -> CaseResult:
    found = _logits_at(engine, case)
    if case.vocab_ids is not None:
        found = found[:, as_ids(case.vocab_ids, engine.vocab_size, f"{case.name}.vocab_ids")]
    if found.shape != case.logits.shape:
        raise BundleError(f"{case.name} stores logits {case.logits.shape}; {found.shape} were computed.")
    error = np.abs(found.astype(np.float64) - case.logits)
    rms = math.sqrt(float(np.square(error).mean()))
    return CaseResult(
        name=case.name,
        tokens=case.input_ids.size,
        logits=error.size,
        max_ratio=_part(float(error.max()), case.bounds[0]),
        rms_ratio=_part(rms, case.bounds[1]),
    )


def _verify_greedy(engine: OnnxGPT, stored: StoredGreedy) -> GreedyResult:
    """Generate again; where the two best were closer than twice the tolerance, either is right.

    After the first near tie that went the other way the texts differ, and nothing more can be compared.
    """
    count = stored.tokens.size
    generation = engine.generate([stored.prompt], count, Sampling(temperature=0.0), ignore_eos=True)[0]
    same = np.zeros(count, np.bool_)
    found = np.array(generation.ids, np.int64)
    same[: found.size] = found == stored.tokens[: found.size]
    if same.all():
        return GreedyResult(tokens=count, compared=count, differs_at=None)
    first = int(np.flatnonzero(~same)[0])
    near_tie = first < found.size and stored.margins[first] <= 2 * stored.tolerance
    return GreedyResult(tokens=count, compared=first, differs_at=None if near_tie else first)


def verify_files(path: str | Path) -> VerifyReport:
    """Check hashes, graphs and the tokenizer of a bundle, and compute nothing.

    Raises:
        BundleError: if a file, a graph or the tokenizer is not as it should be.
    """
    bundle = open_bundle(path)
    check_graph(bundle)
    check_tokenizer(bundle)
    return VerifyReport(path=bundle.path, manifest=bundle.manifest, provider=None, runtime_version=None)


def verify_bundle(
    path: str | Path,
    provider: str = AUTO,
    threads: int | None = None,
    *,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check hashes, graphs and the tokenizer of a bundle, and compute its stored reference logits again.

    Args:
        path: The bundle's folder.
        provider: Where to compute; see OnnxGPT.load.
        threads: Threads within an operator; None: the cores that this process may use.
        progress: Told how many of how many sequences are done.

    Raises:
        BundleError: if a file, a graph or the tokenizer is not as it should be.
        ProviderError: if the provider is not to be had.
    """
    engine = OnnxGPT.load(path, provider, threads)
    bundle = engine.bundle
    check_tokenizer(bundle)
    report = VerifyReport(
        path=bundle.path,
        manifest=bundle.manifest,
        provider=engine.provider,
        runtime_version=engine.runtime_version,
    )
    if FILE_NAME not in bundle.manifest.files:
        return report
    reference = read_reference(bundle.file(FILE_NAME))
    cases = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LengthWarning)
        for index, case in enumerate(reference.cases):
            cases.append(_verify_case(engine, case))
            if progress is not None:
                progress(index + 1, len(reference.cases))
        greedy = _verify_greedy(engine, reference.greedy) if reference.greedy else None
    return VerifyReport(
        path=report.path,
        manifest=report.manifest,
        provider=report.provider,
        runtime_version=report.runtime_version,
        cases=tuple(cases),
        greedy=greedy,
    )
