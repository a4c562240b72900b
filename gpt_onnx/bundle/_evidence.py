"""The evidence in a bundle: ``parity.json`` and ``quality.json``, each read by one strict reader.

    read_quality(bundle).kl_mean         # None where the bundle has no such file
    read_parity(bundle).worst_ratio
    check_evidence(bundle)               # what is to be there is there, and nothing else

What reads them are ``inspect``, ``verify`` and ``bench``. A file that lacks a figure, or has one of the wrong
kind, is a BundleError that names file and figure; so is one that was written of other graphs or weights
(which it names by their hashes), or that contradicts the manifest or itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx.bundle._codec import parse_object
from gpt_onnx.bundle._evidence_claims import check_claims, parity_claims, quality_claims
from gpt_onnx.bundle._hashing import read_bounded
from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import MANIFEST, PARITY, QUALITY, REFERENCE, shorten
from gpt_onnx.bundle._open import Bundle
from gpt_onnx.bundle._rules import (
    COUNT,
    NAME,
    NUMBER,
    POSITIVE,
    SIZE,
    TEXT,
    Rule,
    choice,
    is_number,
    optional,
)
from gpt_onnx.bundle._targets import SINGLE, UNCHECKED
from gpt_onnx.errors import BundleError

MAX_BYTES = 1 << 24

Place = tuple[str, ...]


_SHARE: Rule = ("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)


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


RANDOM_IDS = "random ids"
"""How the name of what quality was measured on begins where that was no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFigures:
    """How far the bundle is from the float32 model, in short."""

    kl_mean: float
    ln_perplexity_ratio: float
    perplexity_ratio: float | None
    """None where it is beyond float64."""
    same_top: float
    """Share of the tokens where both find the same one the most likely."""
    tokens: int
    text: str
    """What it was measured on."""


_PARITY: Mapping[str, tuple[Place, Rule]] = {
    "level": (("level",), NAME),
    "cases": (("summary", "cases"), COUNT),
    "skipped": (("summary", "skipped"), COUNT),
    "median_ratio": (("summary", "median_ratio"), optional(SIZE)),
    "worst_ratio": (("summary", "worst_ratio"), optional(SIZE)),
    "worst_rms_ratio": (("summary", "worst_rms_ratio"), optional(SIZE)),
}
_QUALITY: Mapping[str, tuple[Place, Rule]] = {
    "kl_mean": (("kl", "mean", "value"), NUMBER),
    "ln_perplexity_ratio": (("ln_ratio", "value"), NUMBER),
    "perplexity_ratio": (("ratio", "value"), optional(SIZE)),
    "same_top": (("same_top", "value"), _SHARE),
    "tokens": (("tokens",), POSITIVE),
    "text": (("text",), TEXT),
}
"""What is told of a file, where it stands, and what it must be."""
_BESIDES: Mapping[str, tuple[tuple[Place, Rule], ...]] = {
    PARITY: (
        (("provider",), TEXT),
        (("reference", "name"), TEXT),
        (("reference", "dtype"), choice(("float64", "float32"))),
        (("seed",), COUNT),
        (("tolerance", "unit"), TEXT),
    ),
    QUALITY: (),
}
"""What else must be in a file, though nobody is told."""


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


_FILES = {PARITY: (_PARITY, parity_claims), QUALITY: (_QUALITY, quality_claims)}
"""File to its figures, and to what it says of the bundle and of itself."""


def _read(bundle: Bundle, name: str) -> dict[str, Any] | None:
    """Return the figures of a file, None where the bundle has no such file."""
    if name not in bundle.manifest.files:
        return None
    path = bundle.file(name)
    try:
        values = parse_object(read_bounded(path, MAX_BYTES))
        places, claims = _FILES[name]
        figures = {field: _at(values, *where) for field, where in places.items()}
        for where in _BESIDES[name]:
            _at(values, *where)
        check_claims(claims(values, bundle.manifest))
    except BundleError as exc:
        raise BundleError(f"{path} cannot be understood: {exc}") from exc
    return figures


def read_parity(bundle: Bundle) -> Parity | None:
    """Return what the gate found, None where it did not run.

    Raises:
        BundleError: if the file is not what the gate writes of this bundle.
    """
    values = _read(bundle, PARITY)
    return None if values is None else Parity(**values)


def read_quality(bundle: Bundle) -> QualityFigures | None:
    """Return how far the bundle is from the float32 model, None where that was not measured.

    Raises:
        BundleError: if the file is not what an export writes of this bundle.
    """
    values = _read(bundle, QUALITY)
    return None if values is None else QualityFigures(**values)


def _json(flag: bool) -> str:
    return str(flag).lower()


def _wanted(manifest: Manifest) -> dict[str, tuple[str, bool]]:
    """Return for each file of evidence what decides whether it must be there, and whether it must."""
    checked = f"checked = {_json(manifest.checked)}", manifest.checked
    changed = f"precision = {manifest.precision}", manifest.precision != SINGLE
    return {PARITY: checked, REFERENCE: checked, QUALITY: changed}


def check_evidence(bundle: Bundle) -> tuple[Parity | None, QualityFigures | None]:
    """Return what ``read_parity`` and ``read_quality`` do, and see that there is as much as there must be.

    Raises:
        BundleError: if evidence is missing or is that of another bundle, or if there is some of what the
            manifest says was not done.
    """
    manifest = bundle.manifest
    asked = manifest.options.get("check") != UNCHECKED
    if asked is not manifest.checked:
        raise BundleError(
            f"{bundle.file(MANIFEST)} says checked = {_json(manifest.checked)} and options.check = "
            f"{shorten(manifest.options.get('check'))}; export the bundle again."
        )
    for name, (said, wanted) in _wanted(manifest).items():
        if (name in manifest.files) is not wanted:
            found = "has no" if wanted else "has a"
            raise BundleError(
                f"{bundle.path} {found} {name} and its manifest says {said}; export the bundle again."
            )
    return read_parity(bundle), read_quality(bundle)
