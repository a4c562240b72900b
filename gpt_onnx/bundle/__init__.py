"""The bundle: a folder with graphs, weights, tokenizer and evidence, and a manifest that vouches for them.

    from gpt_onnx.bundle import check_graph, open_bundle
    bundle = open_bundle("my-gpt")              # verified before anything else is parsed
    check_graph(bundle)                         # its graphs hold what they promise, and nothing else
    bundle.manifest.graph.layout                # "dynamic"

Standard library only: it is imported on devices that have neither PyTorch nor onnx.
"""

from __future__ import annotations

from gpt_onnx.bundle._check import check_graph, check_summaries
from gpt_onnx.bundle._codec import decode_manifest, encode_manifest
from gpt_onnx.bundle._describe import describe_bundle
from gpt_onnx.bundle._graph import parse_graph, read_graph
from gpt_onnx.bundle._manifest import (
    FORMAT,
    FORMAT_VERSION,
    FileEntry,
    GraphInfo,
    Manifest,
    ModelInfo,
    QuantizationInfo,
)
from gpt_onnx.bundle._open import Bundle, open_bundle
from gpt_onnx.bundle._publish import check_destination, publishing, replacing
from gpt_onnx.bundle._seal import seal
from gpt_onnx.bundle._summary import External, GraphSummary, Initializer, Node, Value

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
    "QuantizationInfo",
    "Value",
    "check_destination",
    "check_graph",
    "check_summaries",
    "decode_manifest",
    "describe_bundle",
    "encode_manifest",
    "open_bundle",
    "parse_graph",
    "publishing",
    "read_graph",
    "replacing",
    "seal",
]
