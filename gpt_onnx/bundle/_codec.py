"""``Manifest`` to the bytes of ``manifest.json`` and back.

The bytes depend on the values alone: fields in their declared order, free keys sorted, two spaces, one
newline at the end. Reading is strict: UTF-8, no key twice, none unknown or missing, no NaN, at most
MAX_MANIFEST_BYTES. A format that is newer than FORMAT_VERSION is refused before anything else of it is looked
at; older ones are lifted version by version through UPGRADES.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from gpt_onnx.bundle._graph_info import GraphInfo
from gpt_onnx.bundle._manifest import FORMAT, FORMAT_VERSION, FileEntry, Manifest
from gpt_onnx.bundle._model_info import ModelInfo
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._quantization_info import QuantizationInfo
from gpt_onnx.errors import BundleError

MAX_MANIFEST_BYTES = 1 << 20


def _with_key(values: Any, name: str, value: object, version: int) -> Any:
    """Return an object of an older version with a key that a version brought; what is none stays what it is.

    Raises:
        BundleError: if it has the key, which its version cannot have.
    """
    if not isinstance(values, dict):
        return values
    if name in values:
        raise BundleError(
            f"it has the key {name!r}, which came with format_version {version}, and says an older one."
        )
    return {**values, name: value}


def _to_2(values: dict[str, Any]) -> dict[str, Any]:
    return {**_with_key(values, "quantization", None, 2), "format_version": 2}


def _to_3(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "format_version": 3, "graph": _with_key(values.get("graph"), "shards", [], 3)}


UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _to_2, 2: _to_3}
"""Version to the function that turns an object of that version into one of the next."""
RECORDS: Mapping[str, Any] = {"graph": GraphInfo, "model": ModelInfo, "quantization": QuantizationInfo}
"""Key to the kind of object that it holds."""

_LEADING = ("format", "format_version")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of ``manifest.json``: equal manifests give equal bytes."""
    values = dataclasses.asdict(manifest)
    ordered = {name: values.pop(name) for name in _LEADING} | values
    ordered |= {name: _sorted(ordered[name]) for name in ("options", "versions", "files")}
    text = json.dumps(ordered, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BundleError(f"the key {shorten(twice)} occurs twice; each may occur once.")
    return values


def _no_constant(text: str) -> NoReturn:
    raise BundleError(f"{text} is a value; numbers must be finite.")


def parse_object(content: bytes) -> dict[str, Any]:
    """Read strict JSON that holds one object.

    Raises:
        BundleError: if it is not UTF-8, not JSON, not an object, nested too deeply, or has a key twice.
    """
    try:
        value = json.loads(
            content.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as exc:
        raise BundleError(f"it is not JSON in UTF-8: {shorten(str(exc)).strip(chr(39))}.") from exc
    if not isinstance(value, dict):
        raise BundleError(f"it holds a {type(value).__name__}; it must hold one JSON object.")
    return value


def _record(kind: Any, values: object, where: str) -> Any:
    """Make a dataclass from a JSON object that has exactly its fields."""
    if not isinstance(values, dict):
        raise BundleError(f"{where} is {shorten(values)}; it must be an object.")
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := sorted(set(values) - known):
        raise BundleError(
            f"{where} has the unknown key {shorten(unknown[0])}; known are {', '.join(sorted(known))}."
        )
    if missing := sorted(known - set(values)):
        raise BundleError(f"{where} lacks the key {missing[0]!r}.")
    return kind(**values)


def _at_current_version(values: dict[str, Any]) -> dict[str, Any]:
    """Refuse foreign and newer objects; lift older ones."""
    if values.get("format") != FORMAT:
        raise BundleError(f"its format is {shorten(values.get('format'))}; a bundle's is {FORMAT!r}.")
    version = values.get("format_version")
    if type(version) is not int or version < 1:
        raise BundleError(f"its format_version is {shorten(version)}; it must be an integer of at least 1.")
    if version > FORMAT_VERSION:
        raise BundleError(
            f"its format_version is {shorten(version)} and this gpt-onnx reads up to {FORMAT_VERSION}; "
            "upgrade gpt-onnx."
        )
    for older in range(version, FORMAT_VERSION):
        values = UPGRADES[older](values)
    return values


def decode_manifest(content: bytes) -> Manifest:
    """Read the bytes of ``manifest.json``.

    Raises:
        BundleError: if they are not a manifest of this format version or an older one.
    """
    if len(content) > MAX_MANIFEST_BYTES:
        raise BundleError(f"it has {len(content)} bytes; a manifest has at most {MAX_MANIFEST_BYTES}.")
    values = _at_current_version(parse_object(content))
    if isinstance(files := values.get("files"), dict):
        values["files"] = {
            name: _record(FileEntry, entry, f"files[{shorten(name)}]") for name, entry in files.items()
        }
    for name, kind in RECORDS.items():
        if values.get(name) is not None:
            values[name] = _record(kind, values[name], name)
    manifest: Manifest = _record(Manifest, values, "the manifest")
    if not manifest.files:
        raise BundleError("files is empty; a bundle has at least a graph.")
    return manifest
