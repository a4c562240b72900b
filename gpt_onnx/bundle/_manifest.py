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
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_onnx.bundle._names import fault_in_name, first_clash, shorten
from gpt_onnx.errors import BundleError

FORMAT = "gpt-onnx"
FORMAT_VERSION = 2
LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "dynamic": ("model",),
    "static": ("prefill", "decode"),
    "plain": ("model",),
}
"""Each layout with the roles of its graphs."""
ATTENTIONS = ("gqa", "decomposed", "traced")
ACCURACY_LEVELS = (0, 4)
WEIGHT_BITS = (4, 8)
BLOCK_SIZES = (16, 32, 64, 128, 256)
"""What com.microsoft::MatMulNBits takes."""
INTEGER_PRECISIONS: Mapping[str, int] = {"int4": 4, "int8": 8}
"""Precisions of integer weights, and the bits of one."""
FLOAT_BITS = 32
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "unknown")

_Rule = tuple[str, Callable[[Any], bool]]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_text(value: object) -> bool:
    """Whether UTF-8 can hold ``value``: a string without halves of surrogate pairs."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_plain_json(value: object, depth: int = 8) -> bool:
    """Whether JSON can hold ``value`` and give it back equal; at most ``depth`` levels deep."""
    if value is None or isinstance(value, bool) or _is_text(value):
        return True
    if isinstance(value, int):
        return abs(value) < 2**63
    if isinstance(value, float):
        return math.isfinite(value)
    if depth == 0 or not isinstance(value, list | dict):
        return False
    if isinstance(value, list):
        return all(_is_plain_json(item, depth - 1) for item in value)
    return all(_is_text(key) and _is_plain_json(item, depth - 1) for key, item in value.items())


def _pattern(expression: str, meaning: str) -> _Rule:
    compiled = re.compile(expression, re.ASCII)
    return meaning, lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def _choice(choices: tuple[str, ...]) -> _Rule:
    return f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices


def _number_of(choices: tuple[int, ...]) -> _Rule:
    meaning = f"one of {', '.join(str(choice) for choice in choices)}"
    return meaning, lambda value: type(value) is int and value in choices


def _optional(rule: _Rule) -> _Rule:
    meaning, holds = rule
    return f"{meaning}, or null", lambda value: value is None or holds(value)


def _texts_to(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: object) -> bool:
        return isinstance(value, dict) and all(_is_text(k) and holds(v) for k, v in value.items())

    return check


_COUNT: _Rule = ("an integer of at least 0", _is_count)
_POSITIVE: _Rule = ("an integer of at least 1", lambda value: _is_count(value) and value > 0)
_FLAG: _Rule = ("true or false", lambda value: type(value) is bool)
_WORD = _pattern(r"[a-z0-9][a-z0-9_.-]{0,63}", "a short word in lower case")
_SHA256 = _pattern(r"[0-9a-f]{64}", "64 hexadecimal digits in lower case")
_FILE: _Rule = ("the name of a file", lambda value: isinstance(value, str) and fault_in_name(value) is None)
_NAME: _Rule = (
    "one line of at most 200 printable characters",
    lambda value: isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable(),
)


def _check(record: Any, rules: Mapping[str, _Rule], prefix: str = "") -> None:
    """Raise a BundleError for the first field of ``record`` that breaks its rule."""
    for name, (meaning, holds) in rules.items():
        if not holds(value := getattr(record, name)):
            raise BundleError(f"{prefix}{name} is {shorten(value)}; it must be {meaning}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a bundle."""

    size: int
    """Bytes."""
    sha256: str
    """Hash of its content, 64 hexadecimal digits."""

    def __post_init__(self) -> None:
        _check(self, {"size": _COUNT, "sha256": _SHA256})


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphInfo:
    """The ONNX graphs of a bundle.

    Raises:
        BundleError: if a value is of the wrong kind, or the graphs are not those of the layout.
    """

    layout: str
    """"dynamic": one graph with a cache. "static": two graphs of a frozen length. "plain": no cache."""
    graphs: dict[str, str]
    """Role ("model", or "prefill" and "decode") to the path of the graph in the bundle."""
    data: str | None
    """Path of the one file of weights that all graphs share; None where weights are in the graph."""
    attention: str
    """One of ATTENTIONS; "traced": as the exporter found it in a module that is not ours."""
    opset: int
    """Version of the standard operators."""
    ir_version: int
    """Version of the ONNX file format."""
    seq_len: int | None = None
    """Tokens that the graph is frozen to; None: any number."""
    batch_size: int | None = None
    """Sequences that the graph is frozen to; None: any number."""

    def __post_init__(self) -> None:
        _check(self, _GRAPH_RULES, "graph.")
        if set(self.graphs) != set(roles := LAYOUTS[self.layout]):
            found = shorten(sorted(self.graphs))
            raise BundleError(f"graph.graphs has {found}; layout {self.layout} has {', '.join(roles)}.")
        if len(set(self.paths)) < len(self.paths):
            raise BundleError(
                f"graph names {shorten(self.paths)}; each graph and the data is a file of its own."
            )
        frozen = self.seq_len is not None
        if self.layout != "plain" and frozen != (self.layout == "static"):
            wanted = "a number" if self.layout == "static" else "null"
            raise BundleError(
                f"graph.seq_len is {self.seq_len}; it must be {wanted} in layout {self.layout}."
            )

    @property
    def paths(self) -> list[str]:
        """Paths of the graphs and of their weights."""
        return [*self.graphs.values(), *([self.data] if self.data else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Sizes of the model; those that a plain graph does not tell are 0.

    Raises:
        BundleError: if a value is of the wrong kind, or only some sizes of the cache are given.
    """

    vocab_size: int
    """Ids are below it; the last dim of the logits."""
    context_length: int | None
    """Tokens that the model was trained on at once; None: not known."""
    position: str
    """One of POSITIONS."""
    position_limit: int | None
    """The longest sequence that can be computed at all; None: any."""
    n_layer: int
    """Transformer blocks, each with its keys and values."""
    n_kv_head: int
    """Heads of the keys and values."""
    head_size: int
    """Width of one head in the model."""
    cache_head_size: int
    """Width of one head in the graph's cache, zeros after ``head_size``."""
    parameters: int
    """Parameters, each counted once."""

    def __post_init__(self) -> None:
        _check(self, _MODEL_RULES, "model.")
        sizes = (self.n_layer, self.n_kv_head, self.head_size, self.cache_head_size)
        if any(sizes) and not all(sizes):
            raise BundleError(
                f"model.n_layer, n_kv_head, head_size and cache_head_size are {sizes}; "
                "either all of them are positive or all are 0."
            )
        if self.cache_head_size < self.head_size:
            raise BundleError(
                f"model.cache_head_size is {self.cache_head_size}; "
                f"it must be at least head_size = {self.head_size}."
            )

    @property
    def cache_elements_per_token(self) -> int:
        """Elements that one token of one sequence takes in the graph's cache, over all layers."""
        return 2 * self.n_layer * self.n_kv_head * self.cache_head_size


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationInfo:
    """How weights were turned into small integers: each is ``scale * (integer - zero point)``.

    Raises:
        BundleError: if a value is of the wrong kind.
    """

    bits: int
    """Of a weight within the layers."""
    block_size: int
    """Consecutive inputs of one output that share a scale and a zero point."""
    symmetric: bool
    """Whether every zero point is the middle of the range, and none is stored."""
    accuracy_level: int
    """4: products see activations rounded to int8; 0: activations stay float32."""
    quantizer: str
    """The method that chose the integers: "rtn", "hqq", "gptq"."""
    head_bits: int
    """Of a weight of the head, and of the embedding where they are one table; 32: float32."""
    float_weights: list[str]
    """What stayed float32; "*" stands for every layer's number."""

    def __post_init__(self) -> None:
        _check(self, _QUANTIZATION_RULES, "quantization.")


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
        _check(self, _MANIFEST_RULES)
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


_GRAPH_RULES: Mapping[str, _Rule] = {
    "layout": _choice(tuple(LAYOUTS)),
    "graphs": ("an object of roles and file names", _texts_to(_FILE[1])),
    "data": _optional(_FILE),
    "attention": _choice(ATTENTIONS),
    "opset": _POSITIVE,
    "ir_version": _POSITIVE,
    "seq_len": _optional(_POSITIVE),
    "batch_size": _optional(_POSITIVE),
}
_MODEL_RULES: Mapping[str, _Rule] = {
    "vocab_size": _POSITIVE,
    "context_length": _optional(_POSITIVE),
    "position": _choice(POSITIONS),
    "position_limit": _optional(_POSITIVE),
    **dict.fromkeys(("n_layer", "n_kv_head", "head_size", "cache_head_size", "parameters"), _COUNT),
}
_QUANTIZATION_RULES: Mapping[str, _Rule] = {
    "bits": _number_of(WEIGHT_BITS),
    "block_size": _number_of(BLOCK_SIZES),
    "symmetric": _FLAG,
    "accuracy_level": _number_of(ACCURACY_LEVELS),
    "quantizer": _WORD,
    "head_bits": _number_of((*WEIGHT_BITS, FLOAT_BITS)),
    "float_weights": (
        "a list of names",
        lambda value: isinstance(value, list) and all(_NAME[1](name) for name in value),
    ),
}
_MANIFEST_RULES: Mapping[str, _Rule] = {
    "format": (repr(FORMAT), lambda value: value == FORMAT),
    "format_version": (str(FORMAT_VERSION), lambda value: type(value) is int and value == FORMAT_VERSION),
    "name": _NAME,
    "target": _WORD,
    "precision": _WORD,
    "graph": ("an object", lambda value: isinstance(value, GraphInfo)),
    "model": ("an object", lambda value: isinstance(value, ModelInfo)),
    "checked": _FLAG,
    "compared_with_original": _FLAG,
    "options": ("an object of plain JSON", lambda value: isinstance(value, dict) and _is_plain_json(value)),
    "versions": ("an object of strings", _texts_to(_is_text)),
    "source_sha256": _SHA256,
    "quantization": (
        "an object, or null",
        lambda value: value is None or isinstance(value, QuantizationInfo),
    ),
    "files": ("an object of files", _texts_to(lambda value: isinstance(value, FileEntry))),
}
