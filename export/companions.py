"""What a bundle holds beside its graphs: the manifest, files for other clients, the tokenizer, the README."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import gpt_onnx
from gpt_onnx.bundle import GraphInfo, Manifest, QuantizationInfo, seal
from gpt_onnx.bundle._graph import read_graph
from gpt_onnx.bundle._open import list_files
from gpt_onnx.checkpoint.special_ids import special_of
from gpt_onnx.clients import (
    CONFIG_FILE,
    GENAI_FILE,
    GENERATION_FILE,
    OPERATORS_FILE,
    config_json,
    facts_in,
    genai_config_json,
    generation_config_json,
    required_operators,
)

from .build import DATA_FILE
from .gpt_source import Source
from .options import ExportOptions
from .quality import Quality
from .readme import readme
from .targets import find_target
from .weights import shards_of

PACKAGES = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON, in their order, the same bytes everywhere."""
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _versions() -> dict[str, str]:
    """Return the version of each package that took part; onnxruntime is one of two."""
    found = {"gpt-onnx": gpt_onnx.__version__}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _graph_info(source: Source, options: ExportOptions, staging: Path) -> GraphInfo:
    target = find_target(options.target)
    layout = options.layout if source.config is not None else "plain"
    form = target.attention if layout != "plain" else "decomposed"
    files = [f"onnx/{path.name}" for path in shards_of(staging / DATA_FILE)]
    return GraphInfo(
        layout=layout,
        graphs={path.stem: f"onnx/{path.name}" for path in sorted(staging.glob("onnx/*.onnx"))},
        data=DATA_FILE if files else None,
        attention=source.attention or form,
        opset=options.versions[0],
        ir_version=options.versions[1],
        seq_len=options.frozen("seq_len"),
        batch_size=options.frozen("batch_size"),
        shards=files[1:],
    )


def _manifest(
    source: Source, options: ExportOptions, staging: Path, quantization: QuantizationInfo | None
) -> Manifest:
    graph = _graph_info(source, options, staging)
    return Manifest(
        name=source.name,
        target=options.target,
        precision=options.precision,
        quantization=quantization,
        graph=graph,
        model=source.model_info(options),
        checked=False,
        compared_with_original=False,
        options=options.recorded() | {"kv_cache": graph.layout != "plain"},
        versions=_versions(),
        source_sha256=source.sha256(),
    )


def write_companions(
    source: Source, options: ExportOptions, staging: Path, quantization: QuantizationInfo | None
) -> Manifest:
    """Write all that is not a graph or evidence, and seal the bundle for the gate to load."""
    manifest = _manifest(source, options, staging, quantization)
    generation = source.generation
    special = special_of(source.tokenizer, generation)
    if manifest.graph.data is None:
        (staging / DATA_FILE).unlink()
    write_json(staging / CONFIG_FILE, config_json(manifest, source.config, special))
    write_json(staging / GENERATION_FILE, generation_config_json(special, generation))
    if manifest.graph.layout == "dynamic" and source.config is not None:
        genai = genai_config_json(manifest, source.config, special, generation)
        write_json(staging / GENAI_FILE, genai)
    if source.tokenizer is not None:
        (staging / "tokenizer.json").write_text(source.tokenizer.definition, encoding="utf-8")
        write_json(staging / "tokenizer_config.json", source.tokenizer.config)
    graphs = [read_graph(staging / path) for path in manifest.graph.graphs.values()]
    (staging / OPERATORS_FILE).write_text(required_operators(graphs), encoding="utf-8")
    return finish(manifest, source, staging)


def finish(manifest: Manifest, source: Source, staging: Path, quality: Quality | None = None) -> Manifest:
    """Write the README, which says what manifest and quality say, and seal."""
    text = readme(
        facts_in(staging, manifest, dict(list_files(staging))),
        causal=source.causal,
        notes=source.notes,
        quality=None if quality is None else quality.summary(),
    )
    (staging / "README.md").write_text(text, encoding="utf-8")
    return seal(staging, manifest)
