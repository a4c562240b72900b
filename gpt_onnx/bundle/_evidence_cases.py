"""The cases of a ``parity.json``: what each may hold, and whether its verdict is that of its numbers.

    cases = cases_of(values)                  # BundleError: one is no case, or none compared numbers
    claims = verdicts(cases)

A case has passed where its largest error and its RMS error are within the factors of the format, in units of
what float32 costs (docs/parity.md). Some cases compare no numbers: tokens, weights bit for bit, and refusals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._rules import FLAG, POSITIVE, SIZE, TEXT, Rule
from gpt_onnx.errors import BundleError

FORMAT_VERSION = 1
"""Of ``parity.json``."""
TERMS: Mapping[str, float] = {"max_factor": 4.0, "rms_factor": 3.0, "floor": 8 * 2.0**-24}
"""What accepts a case in this format: factors of a unit, and the least unit as a part of the numbers."""

Case = dict[str, Any]

_ALWAYS = ("group", "name", "passed")
_NUMBERS = ("ratio", "rms_ratio")
_FINDINGS = (*_NUMBERS, "near_ties", "fault", "careful_unit")
_KINDS: Mapping[str, Rule] = {
    "group": TEXT,
    "name": TEXT,
    "passed": FLAG,
    "ratio": SIZE,
    "rms_ratio": SIZE,
    "near_ties": POSITIVE,
    "fault": TEXT,
    "careful_unit": ("true", lambda value: value is True),
    "skipped": TEXT,
}
"""What the gate writes of a case."""
_WITHOUT_NUMBERS = re.compile(
    r"(exact products: )?greedy: .*|weights: .*|lengths: [0-9]+ tokens? are refused"
)
"""Cases that compare no numbers, as group: name."""


def _must_hold(case: Case) -> tuple[str, ...]:
    """Return what a case must hold beside its name and its verdict."""
    told = f"{case['group']}: {case['name']}"
    return () if "skipped" in case or _WITHOUT_NUMBERS.fullmatch(told) else _NUMBERS


def _check_keys(case: Case, place: str, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in case:
            raise BundleError(f"{place} lacks {name}, {_KINDS[name][0]}.")


def _check_case(case: Case, place: str) -> None:
    """See that a case holds what the gate writes of one.

    Raises:
        BundleError: if it does not; the message names the case and its key.
    """
    _check_keys(case, place, _ALWAYS)
    for name, (meaning, holds) in _KINDS.items():
        if name in case and not holds(case[name]):
            raise BundleError(f"{place}.{name} is {shorten(case[name])}; it must be {meaning}.")
    _check_keys(case, place, _must_hold(case))
    if "skipped" in case and (found := [name for name in _FINDINGS if name in case]):
        raise BundleError(f"{place} was skipped and has {found[0]}, which only a case that ran has.")


def cases_of(values: Mapping[str, Any]) -> list[Case]:
    """Return the cases of a gate that passed.

    Raises:
        BundleError: if they are no list of cases, or none of them compared numbers.
    """
    cases = values.get("cases")
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise BundleError(f"cases is {shorten(cases)}; it must be a list of objects.")
    for index, case in enumerate(cases):
        _check_case(case, f"cases[{index}]")
    if not any("ratio" in case for case in cases):
        raise BundleError(
            f"none of its {len(cases)} cases compared numbers, which a bundle that was checked has: "
            "export the bundle again."
        )
    return cases


def _accepted(case: Case) -> bool:
    within = case.get("ratio", 0) <= TERMS["max_factor"] and case.get("rms_ratio", 0) <= TERMS["rms_factor"]
    return within and "fault" not in case


def verdicts(cases: list[Case]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what each case says of having passed, and what its numbers make it."""
    for index, case in enumerate(cases):
        yield f"cases[{index}].passed", case["passed"], _accepted(case)
