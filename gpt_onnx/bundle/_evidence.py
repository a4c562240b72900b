"""The evidence in a bundle: ``parity.json`` and ``quality.json``, each read by one strict reader.

    read_quality(bundle).kl_mean         # None where the bundle has no such file
    read_parity(bundle).worst_ratio

What reads them are ``inspect``, ``verify`` and ``bench``. A file that lacks a figure, or has one of the wrong
kind, is a BundleError that names file and figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx.bundle._codec import parse_object
from gpt_onnx.bundle._hashing import read_bounded
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._open import Bundle
from gpt_onnx.bundle._rules import COUNT, NAME, POSITIVE, Rule, optional
from gpt_onnx.errors import BundleError

PARITY = "parity.json"
QUALITY = "quality.json"
MAX_BYTES = 1 << 24

Place = tuple[str, ...]


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]  # a number by now


_NUMBER: Rule = ("a finite number", _is_number)
_SIZE: Rule = ("a number of at least 0", lambda value: _is_number(value) and value >= 0)
_SHARE: Rule = ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """What the gate found, in short."""

    level: str
    cases: int
    skipped: int
    median_ratio: float | None
    """None where no case compared numbers, as are the others."""
    worst_ratio: float | None
    worst_rms_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFigures:
    """How far the bundle is from the float32 model, in short."""

    kl_mean: float
    perplexity_ratio: float | None
    """None where it is beyond float64."""
    same_top: float
    """Share of the tokens where both find the same one the most likely."""
    tokens: int


_PARITY: Mapping[str, tuple[Place, Rule]] = {
    "level": (("level",), NAME),
    "cases": (("summary", "cases"), COUNT),
    "skipped": (("summary", "skipped"), COUNT),
    "median_ratio": (("summary", "median_ratio"), optional(_SIZE)),
    "worst_ratio": (("summary", "worst_ratio"), optional(_SIZE)),
    "worst_rms_ratio": (("summary", "worst_rms_ratio"), optional(_SIZE)),
}
_QUALITY: Mapping[str, tuple[Place, Rule]] = {
    "kl_mean": (("kl", "mean", "value"), _NUMBER),
    "perplexity_ratio": (("ratio", "value"), optional(_SIZE)),
    "same_top": (("same_top", "value"), _SHARE),
    "tokens": (("tokens",), POSITIVE),
}
"""What is told of a file, where it stands, and what it must be."""


def _at(values: Any, path: Place, rule: Rule) -> Any:
    meaning, holds = rule
    name = ".".join(path)
    for key in path:
        if not isinstance(values, dict) or key not in values:
            raise BundleError(f"it lacks {name}, {meaning}.")
        values = values[key]
    if not holds(values):
        raise BundleError(f"{name} is {shorten(values)}; it must be {meaning}.")
    return values


def _read(bundle: Bundle, name: str, figures: Mapping[str, tuple[Place, Rule]]) -> dict[str, Any] | None:
    """Return the figures of a file, None where the bundle has no such file."""
    if name not in bundle.manifest.files:
        return None
    path = bundle.file(name)
    try:
        values = parse_object(read_bounded(path, MAX_BYTES))
        return {field: _at(values, *where) for field, where in figures.items()}
    except BundleError as exc:
        raise BundleError(f"{path} cannot be understood: {exc}") from exc


def read_parity(bundle: Bundle) -> Parity | None:
    """Return what the gate found, None where it did not run.

    Raises:
        BundleError: if the file is not what the gate writes.
    """
    values = _read(bundle, PARITY, _PARITY)
    return None if values is None else Parity(**values)


def read_quality(bundle: Bundle) -> QualityFigures | None:
    """Return how far the bundle is from the float32 model, None where that was not measured.

    Raises:
        BundleError: if the file is not what an export writes.
    """
    values = _read(bundle, QUALITY, _QUALITY)
    return None if values is None else QualityFigures(**values)
