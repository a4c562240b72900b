"""What evidence says of the bundle that it is in, and of itself, beside what it must say.

    check_claims(parity_claims(values, manifest))       # BundleError: it was written of another bundle

Evidence names the graphs and weights that ran by their hashes, as the manifest does. Figures that sum up
cases are those of the cases that are listed, and each case has passed if its own numbers say so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from gpt_onnx._figures import exp
from gpt_onnx.bundle._evidence_cases import FORMAT_VERSION, TERMS, Case, cases_of, verdicts
from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._rules import same
from gpt_onnx.bundle._targets import SINGLE
from gpt_onnx.errors import BundleError

ROUNDING = 1e-12
"""By how much e to a number may differ between machines, as a part of it."""
DIGITS = 0.02
"""The same of a median of figures of three digits, itself rounded to three."""
Claims = Iterator[tuple[str, Any, Any]]
"""What is claimed, as the file says it, and as it must be."""


def measured_files(manifest: Manifest) -> dict[str, str]:
    """Return the SHA-256 of each graph and file of weights of a sealed bundle, which evidence names."""
    return {path: manifest.files[path].sha256 for path in sorted(manifest.graph.paths)}


def _files(values: Mapping[str, Any], manifest: Manifest) -> Claims:
    hashes = values.get("sha256")
    for path, sha256 in measured_files(manifest).items():
        yield f"the hash of {path}", hashes.get(path) if isinstance(hashes, dict) else None, sha256


def _compared(cases: list[Case], name: str) -> list[float]:
    """Return a figure of the cases that compared numbers, of which there is one at least."""
    return [case[name] for case in cases if name in case]


def _near(said: Any, expected: float | None, part: float) -> Any:
    """Return what must be said: what is, where that is as near as rounding leaves it."""
    if said is None or expected is None:
        return expected
    return said if math.isclose(said, expected, rel_tol=part) else expected


def _summary(summary: Mapping[str, Any], cases: list[Case]) -> Claims:
    sums = {
        "cases": len(cases),
        "skipped": sum("skipped" in case for case in cases),
        "failed": sum(case.get("passed") is not True for case in cases),
        "worst_ratio": max(_compared(cases, "ratio")),
        "worst_rms_ratio": max(_compared(cases, "rms_ratio")),
        "median_ratio": _near(
            summary.get("median_ratio"), statistics.median(_compared(cases, "ratio")), DIGITS
        ),
        "near_ties": sum(_compared(cases, "near_ties")),
    }
    for name, expected in sums.items():
        yield f"summary.{name}", summary.get(name), expected


def _terms(values: Mapping[str, Any]) -> Claims:
    tolerance = values["tolerance"]
    for name, expected in TERMS.items():
        yield f"tolerance.{name}", tolerance.get(name), expected


def parity_claims(values: Mapping[str, Any], manifest: Manifest) -> Claims:
    """Yield what a gate says of its bundle and of its cases; ``values`` has level, summary and tolerance."""
    yield "format_version", values.get("format_version"), FORMAT_VERSION
    yield from _files(values, manifest)
    yield from _terms(values)
    yield "passed", values.get("passed"), True
    yield "level", values["level"], manifest.options.get("check")
    yield "compared_with_original", values.get("compared_with_original"), manifest.compared_with_original
    yield "versions", values.get("versions"), manifest.versions
    cases = cases_of(values)
    yield from verdicts(cases)
    yield from _summary(values["summary"], cases)
    yield "summary.failed", values["summary"]["failed"], 0


def quality_claims(values: Mapping[str, Any], manifest: Manifest) -> Claims:
    """Yield what figures of quality say of their bundle; ``values`` has the ratio and its logarithm."""
    yield from _files(values, manifest)
    yield "against", values.get("against"), SINGLE
    said = values["ratio"]["value"]
    yield "ratio.value", said, _near(said, exp(values["ln_ratio"]["value"]), ROUNDING)


def check_claims(claims: Claims) -> None:
    """Check that all claims hold.

    Raises:
        BundleError: for the first that does not, with what is said and what must be.
    """
    for what, said, expected in claims:
        if not same(said, expected):
            raise BundleError(
                f"{what} is {shorten(said)}; of this bundle it must be {shorten(expected)}: "
                "export the bundle again."
            )
