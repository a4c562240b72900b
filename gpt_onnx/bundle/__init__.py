"""The bundle: a folder with graphs, weights, tokenizer and evidence, and a manifest that vouches for them.

    from gpt_onnx.bundle import check_graph, open_bundle
    bundle = open_bundle("my-gpt")              # verified before anything else is parsed
    check_graph(bundle)                         # its graphs hold what they promise, and nothing else
    bundle.manifest.graph.layout                # "dynamic"

Standard library only: it is imported on devices that have neither PyTorch nor onnx. Names are fetched when
they are first used (PEP 562): whoever opens a bundle does not pay for what writes one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpt_onnx.bundle._check import check_graph as check_graph
    from gpt_onnx.bundle._check import check_summaries as check_summaries
    from gpt_onnx.bundle._codec import decode_manifest as decode_manifest
    from gpt_onnx.bundle._codec import encode_manifest as encode_manifest
    from gpt_onnx.bundle._describe import describe_bundle as describe_bundle
    from gpt_onnx.bundle._evidence import Parity as Parity
    from gpt_onnx.bundle._evidence import QualityFigures as QualityFigures
    from gpt_onnx.bundle._evidence import check_evidence as check_evidence
    from gpt_onnx.bundle._evidence import read_parity as read_parity
    from gpt_onnx.bundle._evidence import read_quality as read_quality
    from gpt_onnx.bundle._file_sizes import file_sizes as file_sizes
    from gpt_onnx.bundle._graph import parse_graph as parse_graph
    from gpt_onnx.bundle._graph import read_graph as read_graph
    from gpt_onnx.bundle._graph_info import GraphInfo as GraphInfo
    from gpt_onnx.bundle._manifest import FORMAT as FORMAT
    from gpt_onnx.bundle._manifest import FORMAT_VERSION as FORMAT_VERSION
    from gpt_onnx.bundle._manifest import FileEntry as FileEntry
    from gpt_onnx.bundle._manifest import Manifest as Manifest
    from gpt_onnx.bundle._model_info import ModelInfo as ModelInfo
    from gpt_onnx.bundle._open import Bundle as Bundle
    from gpt_onnx.bundle._open import open_bundle as open_bundle
    from gpt_onnx.bundle._publish import check_destination as check_destination
    from gpt_onnx.bundle._publish import publishing as publishing
    from gpt_onnx.bundle._publish import replacing as replacing
    from gpt_onnx.bundle._quantization_info import QuantizationInfo as QuantizationInfo
    from gpt_onnx.bundle._seal import seal as seal
    from gpt_onnx.bundle._summary import External as External
    from gpt_onnx.bundle._summary import GraphSummary as GraphSummary
    from gpt_onnx.bundle._summary import Initializer as Initializer
    from gpt_onnx.bundle._summary import Node as Node
    from gpt_onnx.bundle._summary import Value as Value
    from gpt_onnx.bundle._verifying import verifying as verifying

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "Bundle",
    "External",
    "FileEntry",
    "GraphInfo",
    "GraphSummary",
    "Initializer",
    "Manifest",
    "ModelInfo",
    "Node",
    "Parity",
    "QualityFigures",
    "QuantizationInfo",
    "Value",
    "check_destination",
    "check_evidence",
    "check_graph",
    "check_summaries",
    "decode_manifest",
    "describe_bundle",
    "encode_manifest",
    "file_sizes",
    "open_bundle",
    "parse_graph",
    "publishing",
    "read_graph",
    "read_parity",
    "read_quality",
    "replacing",
    "seal",
    "verifying",
]

_HOMES = {
    name: home
    for home, names in {
        "_check": ("check_graph", "check_summaries"),
        "_codec": ("decode_manifest", "encode_manifest"),
        "_describe": ("describe_bundle",),
        "_evidence": ("Parity", "QualityFigures", "check_evidence", "read_parity", "read_quality"),
        "_file_sizes": ("file_sizes",),
        "_graph": ("parse_graph", "read_graph"),
        "_graph_info": ("GraphInfo",),
        "_manifest": ("FORMAT", "FORMAT_VERSION", "FileEntry", "Manifest"),
        "_model_info": ("ModelInfo",),
        "_open": ("Bundle", "open_bundle"),
        "_publish": ("check_destination", "publishing", "replacing"),
        "_quantization_info": ("QuantizationInfo",),
        "_seal": ("seal",),
        "_summary": ("External", "GraphSummary", "Initializer", "Node", "Value"),
        "_verifying": ("verifying",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpt_onnx.bundle' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
