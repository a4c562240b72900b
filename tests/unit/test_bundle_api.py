"""What ``gpt_onnx.bundle`` offers, and that importing it brings nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import gpt_onnx.bundle

NAMES = [
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


def test_exported_names() -> None:
    assert gpt_onnx.bundle.__all__ == NAMES
    assert [name for name in NAMES if not hasattr(gpt_onnx.bundle, name)] == []
    public = {name for name in vars(gpt_onnx.bundle) if not name.startswith("_")}
    assert public - set(NAMES) <= {"annotations", "importlib", "Any", "TYPE_CHECKING"}


def test_every_public_thing_has_a_docstring() -> None:
    for name in NAMES:
        value = getattr(gpt_onnx.bundle, name)
        assert isinstance(value, str | int) or value.__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(gpt_onnx.bundle, "no_such_name")


def test_import_is_light() -> None:
    heavy = {"numpy", "onnx", "onnxruntime", "torch", "rich"}
    code = f"import gpt_onnx.bundle, sys; print(*sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
