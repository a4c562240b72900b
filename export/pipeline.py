"""export_bundle: trace, rewrite, write, check, publish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_onnx.bundle import Manifest, check_graph, open_bundle, publishing
from gpt_onnx.errors import InputError, ParityError

from .build import Progress, write_graphs
from .companions import finish, write_companions, write_json
from .gate import GateReport, run_gate, write_reference
from .gpt_source import Source
from .options import ExportOptions, options_of
from .source import SourceLike, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """What an export made."""

    path: Path
    manifest: Manifest
    gate: GateReport | None = field(repr=False)
    """What the gate found; None if it was not asked."""
    payload_bytes: int
    """Bytes of all weights, each once."""
    rewrites: Mapping[str, int]
    """How often each pass fired."""
    notes: tuple[str, ...]
    """Sentences that the user should read: what the bundle cannot do, and why."""

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.manifest.files.values())


def _silent(step: str, done: int, total: int) -> None:
    """Report progress to nobody."""


def check_reference(options: ExportOptions) -> None:
    """Refuse a reference file that is not there, before any work is done.

    Raises:
        InputError: if it is not there.
    """
    if options.reference is not None and not Path(options.reference).is_file():
        raise InputError(
            f"the reference file {options.reference} does not exist; it holds input_ids and logits that the "
            "original program wrote."
        )


def _check_destination(destination: object) -> None:
    if not isinstance(destination, str | os.PathLike) or not str(destination):
        raise InputError(f"the destination is {destination!r}; name the folder to make.")


def export_bundle(
    module_or_path: SourceLike, destination: str | Path, *, progress: Progress = _silent, **options: Any
) -> BundleReport:
    """Export a model to a bundle, check it against the model, and publish it whole or not at all.

    Args:
        module_or_path: A torch.nn.Module, a checkpoint of any kind, ``FILE.py:NAME`` (runs that file), or
            None for the model that ships with the sources.
        destination: The folder to make.
        progress: Told about each step.
        **options: Fields of ExportOptions.

    Raises:
        ConfigError, InputError, CheckpointError: if options or source cannot be used.
        ExportError: if the graph cannot be made or breaks a promise.
        ParityError: if graph and model compute different numbers; nothing is published then.
        BundleError: if the destination cannot be written.
    """
    chosen = options_of(options)
    _check_destination(destination)
    check_reference(chosen)
    source = resolve(module_or_path, chosen)
    with publishing(destination, overwrite=chosen.overwrite) as staging:
        written = write_graphs(source, chosen, staging, progress)
        progress("hash", 0, 1)
        manifest = write_companions(source, chosen, staging, written.quantization)
        progress("hash", 1, 1)
        check_graph(open_bundle(staging, check_hashes=False))
        gate = _check(source, chosen, staging, progress)
        if gate is not None:
            manifest = _record(manifest, gate, source, staging)
    return BundleReport(
        path=Path(destination),
        manifest=manifest,
        gate=gate,
        payload_bytes=written.payload_bytes,
        rewrites=written.rewrites,
        notes=source.notes,
    )


def _check(source: Source, options: ExportOptions, staging: Path, progress: Progress) -> GateReport | None:
    """Run the gate on what would be published.

    Raises:
        ParityError: if a case fails.
    """
    if options.check == "none":
        return None
    report = run_gate(
        staging,
        source.reference(),
        level=options.check,
        reference_file=None if options.reference is None else Path(options.reference),
        progress=lambda done, total: progress("check", done, total),
    )
    if not report.passed:
        raise ParityError(report.summary())
    return report


def _record(manifest: Manifest, gate: GateReport, source: Source, staging: Path) -> Manifest:
    """Put the evidence into the bundle."""
    write_json(staging / "parity.json", gate.to_json())
    write_reference(staging, gate)
    checked = manifest.replace(checked=True, compared_with_original=gate.compared_with_original)
    return finish(checked, source, staging)
