"""export_bundle: trace, rewrite, write, check, publish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_onnx.bundle import Manifest, check_graph, file_sizes, open_bundle, publishing
from gpt_onnx.bundle._evidence_claims import measured_files
from gpt_onnx.bundle._names import PARITY, QUALITY
from gpt_onnx.errors import InputError, ParityError
from gpt_onnx.parameter_shapes import parameter_shapes
from gpt_onnx.runtime import OnnxGPT

from .activations import check_activations
from .build import Progress, write_graphs
from .calibration import LONGEST, calibrates, may_calibrate, note_on, note_on_speed, sequence_length, settled
from .companions import finish, write_companions, write_json
from .footprint import block_size_of
from .gate import GateReport, gate_engine, reference_for, write_reference
from .gpt_source import Source
from .nearer import ways_nearer
from .options import ExportOptions, options_of
from .precisions import HALF
from .quality import Quality, check_max_kl, measure_quality
from .quality_texts import Texts, check_file, read_texts
from .source import SourceLike, resolve
from .speed import decode_tokens_per_s
from .unpublished import told_of_the_graph


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """What an export made."""

    path: Path
    manifest: Manifest
    gate: GateReport | None = field(repr=False)
    """What the gate found; None if it was not asked."""
    quality: Quality | None = field(repr=False)
    """How far the model with integer weights is from the float32 one; None where weights are float32."""
    decode_tokens_per_s: float | None
    """Of one sequence, on this machine, at a glance; None where weights are float32."""
    payload_bytes: int
    """Bytes of all weights, each once."""
    rewrites: Mapping[str, int]
    """How often each pass fired."""
    notes: tuple[str, ...]
    """Sentences that the user should read: what the bundle cannot do, and why."""
    nbytes: int
    """Bytes of all files, the manifest included."""


TRACED_ONCE = (
    "A forward that decides in Python, by a length, a batch size or values, is traced as it went once: "
    "let tensors decide (torch.where), or freeze the length with --seq-len."
)
"""What is most often wrong with a module whose numbers differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What running the bundle told, of what was asked."""

    gate: GateReport | None = None
    quality: Quality | None = None
    decode_tokens_per_s: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the figures must know."""
        return () if self.quality is None else self.quality.notes()


def _silent(step: str, done: int, total: int) -> None:
    """Report progress to nobody."""


def _reads_text(options: ExportOptions) -> bool:
    """Whether weights are made on text, or looked at on it, beside the quality that is measured."""
    return calibrates(options) or options.precision == HALF


def _lack(path: Path) -> str:
    """Return what is wrong with a path that is no file to read."""
    return "is no plain file" if path.exists() else "does not exist"


def check_files(options: ExportOptions) -> None:
    """Refuse a reference or calibration file that cannot do, before any work is done.

    Raises:
        InputError: if it is not there, or calibration is neither text nor ids.
        ConfigError: if the calibration is too short.
    """
    if options.calibration is not None:
        calibration = Path(options.calibration)
        if not calibration.is_file():
            raise InputError(
                f"the calibration file {calibration} {_lack(calibration)}; it holds text (UTF-8) or "
                "ids (.npy)."
            )
        check_file(calibration, calibrates=_reads_text(options))
    if options.reference is not None and not Path(options.reference).is_file():
        raise InputError(
            f"the reference file {options.reference} {_lack(Path(options.reference))}; it holds input_ids "
            "and logits that the original program wrote."
        )


def _check_blocks(source: Source, options: ExportOptions) -> None:
    """See that blocks divide our GPT's weights before anything is computed; a module's are known when traced.

    Raises:
        ConfigError: if they do not.
    """
    if options.choice is not None and source.config is not None:
        block_size_of(parameter_shapes(source.config), options.choice)


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
        ParityError: if graph and model compute different numbers, or integer weights are farther from the
            float32 model than ``max_kl``; nothing is published then.
        BundleError: if the destination cannot be written.
    """
    asked = options_of(options)
    _check_destination(destination)
    check_files(asked)
    source = resolve(module_or_path, asked)
    chosen = settled(source, asked)
    _check_blocks(source, chosen)
    texts = texts_for(source, chosen)
    with publishing(destination, overwrite=chosen.overwrite) as staging:  # a taken destination is told first
        if texts is not None and chosen.precision == HALF:
            length = min(sequence_length(source, chosen), chosen.frozen("seq_len") or LONGEST)
            check_activations(source, texts, length, progress)
        written = write_graphs(source, chosen, staging, texts, progress)
        progress("hash", 0, 1)
        manifest = write_companions(source, chosen, staging, written.quantization)
        progress("hash", 1, 1)
        check_graph(open_bundle(staging, check_hashes=False))
        with told_of_the_graph(staging):
            found = _look_at(source, chosen, staging, texts, progress)
        manifest = _record(manifest, found, source, staging)
    return BundleReport(
        path=Path(destination),
        manifest=manifest,
        gate=found.gate,
        quality=found.quality,
        decode_tokens_per_s=found.decode_tokens_per_s,
        payload_bytes=written.payload_bytes,
        rewrites=written.rewrites,
        notes=(*source.notes, *note_on(source, asked, chosen), *note_on_speed(chosen), *found.notes),
        nbytes=sum(file_sizes(destination).values()),
    )


def texts_for(source: Source, options: ExportOptions) -> Texts | None:
    """Read what weights are calibrated with and quality is measured on; None where they are the source's."""
    if not options.changes_weights:
        return None
    calibration = None if options.calibration is None else Path(options.calibration)
    vocab_size = source.model_info(options).vocab_size
    return read_texts(source.tokenizer, vocab_size, calibration, calibrates=_reads_text(options))


def _look_at(
    source: Source, options: ExportOptions, staging: Path, texts: Texts | None, progress: Progress
) -> Found:
    """Load what would be published, once, and look at it in every way that was asked for.

    Raises:
        ParityError: if a case fails, or the bundle is farther from the float32 model than ``max_kl``.
    """
    if options.check == "none" and texts is None:
        return Found()
    progress("load", 0, 1)
    engine = OnnxGPT.load(staging, "cpu")
    progress("load", 1, 1)
    quantization = engine.bundle.manifest.quantization
    gate = _check(source, options, engine, progress)
    if texts is None:
        return Found(gate=gate)
    quality = measure_quality(source, engine, texts, progress)
    size = None if quantization is None else quantization.block_size
    ways = ways_nearer(options, block_size=size, calibrates=may_calibrate(source, options))
    check_max_kl(quality, options.max_kl, ways)
    return Found(gate=gate, quality=quality, decode_tokens_per_s=decode_tokens_per_s(engine))


def _check(source: Source, options: ExportOptions, engine: OnnxGPT, progress: Progress) -> GateReport | None:
    """Run the gate on what would be published.

    Raises:
        ParityError: if a case fails.
    """
    if options.check == "none":
        return None
    progress("check", 0, 1)  # long sequences are computed before it is known how many cases there are
    report = gate_engine(
        engine,
        reference_for(source, engine.bundle.path),
        level=options.check,
        reference_file=None if options.reference is None else Path(options.reference),
        progress=lambda done, total: progress("check", done, total),
    )
    if not report.passed:
        advice = f" {TRACED_ONCE}" if source.config is None else ""
        raise ParityError(f"{report.summary()}{advice}")
    return report


def _record(manifest: Manifest, found: Found, source: Source, staging: Path) -> Manifest:
    """Put the evidence into the bundle."""
    gate, quality = found.gate, found.quality
    if gate is not None:
        write_json(staging / PARITY, gate.to_json())
        write_reference(staging, gate)
        manifest = manifest.replace(checked=True, compared_with_original=gate.compared_with_original)
    if quality is not None:
        write_json(staging / QUALITY, quality.to_json() | {"sha256": measured_files(manifest)})
    if gate is None and quality is None:
        return manifest
    return finish(manifest, source, staging, quality)
