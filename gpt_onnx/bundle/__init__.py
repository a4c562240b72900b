"""The bundle: a folder with graphs, weights, tokenizer and evidence, and a manifest that vouches for them.

    from gpt_onnx.bundle import open_bundle
    bundle = open_bundle("my-gpt")              # verified before anything else is parsed
    bundle.manifest.graph.layout                # "dynamic"

Standard library and numpy only: it is imported on devices that have neither PyTorch nor onnx.
"""

from __future__ import annotations

from gpt_onnx.bundle._codec import decode_manifest, encode_manifest
from gpt_onnx.bundle._manifest import FORMAT, FORMAT_VERSION, FileEntry, GraphInfo, Manifest, ModelInfo
from gpt_onnx.bundle._open import Bundle, open_bundle
from gpt_onnx.bundle._publish import publishing
from gpt_onnx.bundle._seal import seal

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "Bundle",
    "FileEntry",
    "GraphInfo",
    "Manifest",
    "ModelInfo",
    "decode_manifest",
    "encode_manifest",
    "open_bundle",
    "publishing",
    "seal",
]
