"""Whether what a manifest says in one place agrees with what it says in another.

    check_consistency(manifest)

The records themselves refuse values of the wrong kind, whatever the others are. Here are the values that
follow from others:

    options.*               target, frozen sizes and cache, as the exporter was asked for them
    checked                 options.check is not "none", and the evidence is among the files
    graph.attention         traced: the model's layers are not known; gqa: the target has the operator, the
                            graph a cache, and the scores no bias
    model.position          unknown where attention is traced, and nowhere else
    model.position_limit    of learned positions alone
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._model_info import POSITIONS
from gpt_onnx.bundle._names import AGAIN, PARITY, REFERENCE, shorten
from gpt_onnx.bundle._targets import CHECK_LEVELS, PRECISIONS, TARGETS, UNCHECKED
from gpt_onnx.errors import BundleError

DYNAMIC = "dynamic"
_UNKNOWN = POSITIONS[-1]
_KNOWN = " or ".join(POSITIONS[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A value that a manifest says, and what other values make it."""

    name: str
    said: Any
    because: str
    """The values that decide it."""
    expected: Any

    @property
    def holds(self) -> bool:
        """Whether the two are equal; true is not 1."""
        return type(self.said) is type(self.expected) and bool(self.said == self.expected)


def _options(manifest: Manifest) -> Iterator[Claim]:
    """What the exporter was asked for is what it made; options.check is held against ``checked``."""
    graph = manifest.graph
    made = {
        "target": ("target", manifest.target),
        "seq_len": ("graph.seq_len", graph.seq_len or DYNAMIC),
        "batch_size": ("graph.batch_size", graph.batch_size or DYNAMIC),
        "kv_cache": ("graph.layout", graph.layout != "plain"),
    }
    if unknown := sorted(manifest.options.keys() - made.keys() - {"check"}):
        raise BundleError(
            f"options has the unknown key {shorten(unknown[0])}; known are {', '.join([*made, 'check'])}."
        )
    for name, (because, expected) in made.items():
        yield Claim(
            name=f"options.{name}", said=manifest.options.get(name), because=because, expected=expected
        )


def _attention(manifest: Manifest) -> Iterator[Claim]:
    """Layers that are not known are as they were traced; others have the form of their target."""
    graph, model = manifest.graph, manifest.model
    fused = TARGETS[manifest.target] and graph.layout != "plain" and model.position != "alibi"
    form = "gqa" if fused else "decomposed"
    yield Claim(
        name="graph.attention",
        said=graph.attention,
        because="target, graph.layout, model.position and model.n_layer",
        expected=form if model.n_layer else "traced",
    )


def _positions(manifest: Manifest) -> Iterator[Claim]:
    """Positions are known where layers are, and only a table of learned ones ends."""
    model, traced = manifest.model, manifest.graph.attention == "traced"
    known = _KNOWN if model.position == _UNKNOWN else model.position
    yield Claim(
        name="model.position",
        said=model.position,
        because="graph.attention",
        expected=_UNKNOWN if traced else known,
    )
    if not traced:
        yield Claim(
            name="model.position_limit",
            said=model.position_limit,
            because="model.position and model.context_length",
            expected=model.context_length if model.position == "learned" else None,
        )


def _claims(manifest: Manifest) -> Iterator[Claim]:
    for claims in (_options, _attention, _positions):
        yield from claims(manifest)


def _check_known(manifest: Manifest) -> None:
    known = {
        "target": (manifest.target, tuple(TARGETS)),
        "precision": (manifest.precision, PRECISIONS),
        "options.check": (manifest.options.get("check"), CHECK_LEVELS),
    }
    for name, (said, choices) in known.items():
        if said not in choices:
            raise BundleError(
                f"{name} is {shorten(said)}; known are {', '.join(choices)}: {AGAIN}, or upgrade gpt-onnx."
            )


def _check_checked(manifest: Manifest) -> None:
    """A bundle that was checked brings its evidence."""
    if not manifest.checked:
        if manifest.compared_with_original:
            raise BundleError(
                f"compared_with_original is true and checked is false; who compares checks: {AGAIN}."
            )
        return
    if manifest.options["check"] == UNCHECKED:
        raise BundleError(f"checked is true and options.check is {UNCHECKED!r}; {AGAIN}.")
    if missing := [name for name in (PARITY, REFERENCE) if name not in manifest.files]:
        raise BundleError(f"checked is true and it has no {missing[0]}, the evidence; {AGAIN}.")


def check_consistency(manifest: Manifest) -> None:
    """Check that no value of a sealed manifest contradicts another.

    Raises:
        BundleError: for the first that does; the message names it, what it is and what it would have to be.
    """
    _check_known(manifest)
    for claim in _claims(manifest):
        if not claim.holds:
            raise BundleError(
                f"{claim.name} is {shorten(claim.said)}; by {claim.because} it must be "
                f"{shorten(claim.expected)}: {AGAIN}."
            )
    _check_checked(manifest)
