"""What a bundle says of itself: the records that ``manifest.json`` holds.

    Manifest
    ├── graph: GraphInfo                the ONNX graphs, their form and their versions
    ├── model: ModelInfo                the sizes that a runtime needs
    ├── quantization: QuantizationInfo   how weights became small integers; None where they did not
    └── files: path -> FileEntry        every other file, with its size and hash

The records refuse values that contradict each other: code that holds a ``Manifest`` need not ask again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_onnx.bundle._graph_info import GraphInfo
from gpt_onnx.bundle._model_info import ModelInfo
from gpt_onnx.bundle._names import fault_in_name, first_clash, shorten
from gpt_onnx.bundle._quantization_info import INTEGER_PRECISIONS, QuantizationInfo
from gpt_onnx.bundle._rules import (
    COUNT,
    FLAG,
    NAME,
    SHA256,
    WORD,
    Rule,
    check_fields,
    is_plain_json,
    is_text,
    texts_to,
)
from gpt_onnx.errors import BundleError

FORMAT = "gpt-onnx"
FORMAT_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a bundle."""

    size: int
    """Bytes."""
    sha256: str
    """Hash of its content, 64 hexadecimal digits."""

    def __post_init__(self) -> None:
        check_fields(self, {"size": COUNT, "sha256": SHA256})


_MANIFEST_RULES: Mapping[str, Rule] = {
    "format": (repr(FORMAT), lambda value: value == FORMAT),
    "format_version": (str(FORMAT_VERSION), lambda value: type(value) is int and value == FORMAT_VERSION),
    "name": NAME,
    "target": WORD,
    "precision": WORD,
    "graph": ("an object", lambda value: isinstance(value, GraphInfo)),
    "model": ("an object", lambda value: isinstance(value, ModelInfo)),
    "checked": FLAG,
    "compared_with_original": FLAG,
    "options": ("an object of plain JSON", lambda value: isinstance(value, dict) and is_plain_json(value)),
    "versions": ("an object of strings", texts_to(is_text)),
    "source_sha256": SHA256,
    "quantization": (
        "an object, or null",
        lambda value: value is None or isinstance(value, QuantizationInfo),
    ),
    "files": ("an object of files", texts_to(lambda value: isinstance(value, FileEntry))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A bundle's description of itself.

    Raises:
        BundleError: if a value is of the wrong kind or contradicts another.
    """

    name: str
    """What to call the model."""
    target: str
    """What the graphs were made for: "cpu", "portable", ..."""
    precision: str
    """How the weights are stored: "fp32", ..."""
    graph: GraphInfo
    """The ONNX graphs."""
    model: ModelInfo
    """The model's sizes."""
    checked: bool
    """Whether the parity gate ran and passed."""
    compared_with_original: bool
    """Whether the gate also saw numbers that the original program computed."""
    options: dict[str, Any]
    """The exporter's options: plain JSON, no path and no time."""
    versions: dict[str, str]
    """Package to version, of those that took part."""
    source_sha256: str
    """Hash of the checkpoint or source that the bundle was made from."""
    quantization: QuantizationInfo | None = None
    """How weights were quantised; None where all of them are floating point."""
    files: dict[str, FileEntry] = field(default_factory=dict)
    """Path to size and hash, for every file but the manifest; empty until the bundle is sealed."""
    format: str = FORMAT
    """What this is."""
    format_version: int = FORMAT_VERSION
    """Version of the bundle's format."""

    def __post_init__(self) -> None:
        check_fields(self, _MANIFEST_RULES)
        for name in self.files:
            if fault := fault_in_name(name):
                raise BundleError(f"files lists {shorten(name)}; {fault}.")
        if clash := first_clash(self.files):
            raise BundleError(
                f"files lists {clash[0]!r} and {clash[1]!r}, which only case tells apart; rename one."
            )
        if self.graph.layout != "plain" and not self.model.n_layer:
            raise BundleError(f"model.n_layer is 0; a graph of layout {self.graph.layout} has a cache.")
        bits = None if self.quantization is None else self.quantization.bits
        if bits != INTEGER_PRECISIONS.get(self.precision):
            raise BundleError(
                f"precision is {shorten(self.precision)} and quantization says "
                f"{'nothing' if bits is None else f'{bits} bits'}; both say how weights are stored."
            )
        if self.files and (missing := [path for path in self.graph.paths if path not in self.files]):
            raise BundleError(f"files does not list {missing[0]!r}, which graph names.")

    def replace(self, **changes: Any) -> Manifest:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)
