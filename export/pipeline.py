"""export_bundle: trace, rewrite, write, check, publish."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx_ir as ir
from torch import nn

import gpt_onnx
from gpt_onnx.bundle import GraphInfo, Manifest, check_graph, open_bundle, publishing, seal
from gpt_onnx.errors import ParityError

from .clients import config_json, genai_config_json, generation_config_json, readme, special_ids
from .gate import GateReport, run_gate, sample_texts, write_reference
from .options import ExportOptions
from .passes import CACHED_PASSES, KEEP, PASSES, run_passes
from .promises import check_dims, check_no_example_size, rename_mask_length
from .source import Source, SourceLike, Traced, resolve
from .targets import Target, find_target
from .weights import bind, collect_parameters, collect_tables

PACKAGES = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy")
DATA_FILE = "onnx/model.onnx_data"
FUSED_DOMAIN = "com.microsoft"

Progress = Callable[[str, int, int], None]
"""Told a step's name, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """What an export made."""

    path: Path
    manifest: Manifest
    gate: GateReport | None
    """What the gate found; None if it was not asked."""
    payload_bytes: int
    """Bytes of all weights, each once."""
    rewrites: Mapping[str, int]
    """How often each pass fired."""

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.manifest.files.values())


def _silent(step: str, done: int, total: int) -> None:
    """Report progress to nobody."""


def export_bundle(
    module_or_path: SourceLike, destination: str | Path, *, progress: Progress = _silent, **options: Any
) -> BundleReport:
    """Export a model to a bundle, check it against the model, and publish it whole or not at all.

    Args:
        module_or_path: A torch.nn.Module, a checkpoint folder, ``FILE.py:NAME`` (runs that file), or None for
            the model that ships with the sources.
        destination: The folder to make.
        progress: Told about each step.
        **options: Fields of ExportOptions.

    Raises:
        ConfigError, InputError, CheckpointError: if options or source cannot be used.
        ExportError: if the graph cannot be made or breaks a promise.
        ParityError: if graph and model compute different numbers; nothing is published then.
        BundleError: if the destination cannot be written.
    """
    chosen = ExportOptions(**options)
    source = resolve(module_or_path, chosen)
    with publishing(destination, overwrite=chosen.overwrite) as staging:
        rewrites, payload = _write_graphs(source, chosen, staging, progress)
        manifest = _write_companions(source, chosen, staging)
        check_graph(open_bundle(staging, check_hashes=False))
        gate = _check(source, chosen, staging, progress)
        if gate is not None:
            manifest = _record(manifest, gate, source, staging)
    return BundleReport(
        path=Path(destination), manifest=manifest, gate=gate, payload_bytes=payload, rewrites=rewrites
    )


def _rewrite(traced: Traced, source: Source, target: Target) -> dict[str, int]:
    """Run the passes on one traced graph, and hold it to its promise."""
    model, graph = traced.model, traced.graph
    names = source.parameter_names()
    for name in names:
        if name in model.graph.initializers:
            model.graph.initializers[name].const_value = None  # to no pass a constant
    fired = run_passes(model, CACHED_PASSES if _grows(graph.inputs) else PASSES)
    rename_mask_length(model, graph)
    check_dims(model, graph)
    dynamic = {dim for dims in graph.inputs.values() for dim in dims if isinstance(dim, str)}
    check_no_example_size(model, traced.sizes, dynamic)
    _stamp(model, graph.role, target)
    return fired


def _grows(inputs: Mapping[str, Any]) -> bool:
    """Whether a graph has a cache of any length: it is then the one that also says which logits it keeps."""
    return any("past_sequence_length" in dims for dims in inputs.values())


def _stamp(model: ir.Model, role: str, target: Target) -> None:
    """Pin versions and say who made the graph."""
    model.ir_version = target.ir_version
    model.graph.name = role
    model.producer_name, model.producer_version = "gpt-onnx", gpt_onnx.__version__
    fused = any(node.domain == FUSED_DOMAIN for node in model.graph)
    model.opset_imports.clear()
    model.opset_imports.update({"": target.opset} | ({FUSED_DOMAIN: 1} if fused else {}))


def _write_graphs(
    source: Source, options: ExportOptions, staging: Path, progress: Progress
) -> tuple[dict[str, int], int]:
    """Trace, rewrite and write the graphs and their one data file; return the rewrites and the payload."""
    progress("trace", 0, 1)
    traced, rewrites = source.trace(options), {}
    for part in traced:
        for name, count in _rewrite(part, source, find_target(options.target)).items():
            rewrites[name] = rewrites.get(name, 0) + count
    progress("trace", 1, 1)
    models = {part.graph.role: part.model for part in traced}
    weights = collect_parameters(models.values(), source.parameter_names(), source.weight)
    weights += collect_tables(models)
    (staging / "onnx").mkdir()
    bind(weights, staging / DATA_FILE, lambda done, total: progress("write", done, total))
    for role, model in models.items():
        ir.save(model, staging / f"onnx/{role}.onnx")
    return rewrites, sum(weight.nbytes for weight in weights)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _manifest(source: Source, options: ExportOptions, staging: Path) -> Manifest:
    target = find_target(options.target)
    graphs = {path.stem: f"onnx/{path.name}" for path in sorted(staging.glob("onnx/*.onnx"))}
    return Manifest(
        name=source.name,
        target=target.name,
        precision="fp32",
        graph=GraphInfo(
            layout=options.layout if source.config is not None else "plain",
            graphs=graphs,
            data=DATA_FILE if (staging / DATA_FILE).stat().st_size else None,
            attention=source.attention or target.attention,
            opset=target.opset,
            ir_version=target.ir_version,
            seq_len=options.frozen("seq_len"),
            batch_size=options.frozen("batch_size"),
        ),
        model=source.model_info(options),
        checked=False,
        compared_with_original=False,
        options=options.recorded(),
        versions={"gpt-onnx": gpt_onnx.__version__} | {name: metadata.version(name) for name in PACKAGES},
        source_sha256=source.sha256(),
    )


def _write_companions(source: Source, options: ExportOptions, staging: Path) -> Manifest:
    """Write all that is not a graph or evidence, and seal the bundle for the gate to load."""
    manifest = _manifest(source, options, staging)
    special = special_ids(source.tokenizer)
    if manifest.graph.data is None:
        (staging / DATA_FILE).unlink()
    _write_json(staging / "config.json", config_json(manifest, source.config, special))
    _write_json(staging / "generation_config.json", generation_config_json(special))
    if manifest.graph.layout == "dynamic" and source.config is not None:
        _write_json(staging / "genai_config.json", genai_config_json(manifest, source.config, special))
    if source.tokenizer is not None:
        (staging / "tokenizer.json").write_text(source.tokenizer.definition, encoding="utf-8")
        _write_json(staging / "tokenizer_config.json", source.tokenizer.config)
    return _finish(manifest, source, staging)


def _finish(manifest: Manifest, source: Source, staging: Path) -> Manifest:
    """Write the README, which says what the manifest says, and seal."""
    text = readme(manifest, has_tokenizer=source.tokenizer is not None)
    (staging / "README.md").write_text(text, encoding="utf-8")
    return seal(staging, manifest)


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
        texts=sample_texts(source.tokenizer),
        reference_file=options.reference,
        progress=lambda done, total: progress("check", done, total),
    )
    if not report.passed:
        raise ParityError(report.summary())
    return report


def _record(manifest: Manifest, gate: GateReport, source: Source, staging: Path) -> Manifest:
    """Put the evidence into the bundle."""
    _write_json(staging / "parity.json", gate.to_json())
    write_reference(staging, gate)
    checked = manifest.replace(checked=True, compared_with_original=gate.compared_with_original)
    return _finish(checked, source, staging)
