"""All that can be said of a bundle without running it, as plain JSON.

describe_bundle(open_bundle("my-gpt"))["bytes"]["weights"]
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from gpt_onnx.bundle._check import check_summaries
from gpt_onnx.bundle._evidence import check_evidence
from gpt_onnx.bundle._file_sizes import file_sizes
from gpt_onnx.bundle._graph import read_graph
from gpt_onnx.bundle._graph_info import LAYOUTS
from gpt_onnx.bundle._names import PARITY, QUALITY, REFERENCE
from gpt_onnx.bundle._open import Bundle
from gpt_onnx.bundle._summary import DTYPES, GraphSummary, Value

KINDS: Mapping[str, tuple[str, ...]] = {
    "weights": ("onnx/*.onnx_data", "onnx/*.onnx_data_*"),
    "graph": ("onnx/*.onnx",),
    "tokenizer": ("tokenizer*", "vocab.json", "merges.txt"),
    "evidence": (PARITY, QUALITY, REFERENCE),
    "documentation": ("*.md",),
    "configuration": ("*.json", "*.config"),
}
"""Kind of file to the patterns of its names; the first kind that fits."""


def kind_of(name: str) -> str:
    """Return what kind of file a name is: a key of KINDS, or "other"."""
    fits = (kind for kind, patterns in KINDS.items() if any(fnmatchcase(name, p) for p in patterns))
    return next(fits, "other")


def _bytes_by_kind(bundle: Bundle) -> dict[str, int]:
    """Return bytes by kind, the largest first, then "total"; the manifest counts as configuration."""
    sizes: Counter[str] = Counter()
    for name, size in file_sizes(bundle.path).items():
        sizes[kind_of(name)] += size
    return dict(sizes.most_common()) | {"total": sizes.total()}


def _ports(values: tuple[Value, ...]) -> list[dict[str, Any]]:
    return [{"name": value.name, "type": value.elem_type, "dims": list(value.dims)} for value in values]


def _graph(path: str, summary: GraphSummary) -> dict[str, Any]:
    ops = {f"{domain}::{op}" if domain else op: count for (domain, op), count in summary.op_counts.items()}
    return {
        "path": path,
        "inputs": _ports(summary.inputs),
        "outputs": _ports(summary.outputs),
        "opsets": {domain or "ai.onnx": version for domain, version in sorted(summary.opsets.items())},
        "ir_version": summary.ir_version,
        "nodes": len(summary.nodes),
        "ops": ops,
    }


def _cache_bytes_per_token(bundle: Bundle, summaries: Mapping[str, GraphSummary]) -> int:
    """Bytes that one token of one sequence takes in the cache, in the type that the graph gives it."""
    outputs = (value for summary in summaries.values() for value in summary.outputs)
    types = {value.elem_type for value in outputs if value.name.startswith("present.")}
    bits = dict(DTYPES.values())[types.pop()] if types else 0
    return bundle.manifest.model.cache_elements_per_token * bits // 8


def _told(record: Any) -> dict[str, Any] | None:
    return None if record is None else dataclasses.asdict(record)


def describe_bundle(bundle: Bundle) -> dict[str, Any]:
    """Describe a bundle after its graphs were checked.

    Returns:
        Plain JSON: what the manifest says, the inputs, outputs and operators of each graph, bytes by kind,
        bytes of the cache for each token, and a summary of the parity evidence.

    Raises:
        BundleError: if a graph is not what the manifest says, or the evidence cannot be read.
    """
    manifest = bundle.manifest
    summaries = {role: read_graph(bundle.graph_path(role)) for role in LAYOUTS[manifest.graph.layout]}
    check_summaries(bundle, summaries)
    parity, quality = check_evidence(bundle)
    info = dataclasses.asdict(manifest.graph)
    paths = info.pop("graphs")
    return {
        "name": manifest.name,
        "format_version": manifest.format_version,
        "target": manifest.target,
        "precision": manifest.precision,
        "quantization": manifest.quantization and dataclasses.asdict(manifest.quantization),
        **info,
        "model": dataclasses.asdict(manifest.model),
        "cache_bytes_per_token": _cache_bytes_per_token(bundle, summaries),
        "graphs": {role: _graph(paths[role], summary) for role, summary in summaries.items()},
        "bytes": _bytes_by_kind(bundle),
        "checked": manifest.checked,
        "compared_with_original": manifest.compared_with_original,
        "parity": _told(parity),
        "quality": _told(quality),
        "options": manifest.options,
        "versions": manifest.versions,
        "source_sha256": manifest.source_sha256,
    }
