"""The manifest's bytes depend on its values alone, and reading them is strict."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt_onnx.bundle import (
    FORMAT_VERSION,
    FileEntry,
    Manifest,
    QuantizationInfo,
    decode_manifest,
    encode_manifest,
)
from gpt_onnx.config import POSITIONS
from gpt_onnx.errors import BundleError
from tests.integer_weights import INT4

ManifestMaker = Callable[..., Manifest]
ENTRY = FileEntry(size=3, sha256="ab" * 32)
FILES = dict.fromkeys(("onnx/model.onnx", "onnx/model.onnx_data"), ENTRY)


@pytest.fixture
def values(make_manifest: ManifestMaker) -> dict[str, Any]:
    """The JSON object of a valid manifest."""
    loaded: dict[str, Any] = json.loads(encode_manifest(make_manifest(files=FILES)))
    return loaded


def _encoded(values: object) -> bytes:
    return json.dumps(values).encode()


@pytest.mark.parametrize("layout", ["dynamic", "static", "plain"])
def test_a_manifest_comes_back_equal(make_manifest: ManifestMaker, layout: str) -> None:
    graphs = dict.fromkeys((*make_manifest(layout).graph.paths, "config.json"), ENTRY)
    manifest = make_manifest(layout, files=graphs)
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_equal_manifests_give_equal_bytes(make_manifest: ManifestMaker) -> None:
    one = make_manifest(files=FILES, versions={"a": "1", "b": "2"}, options={"x": 1, "y": {"p": 1, "q": [2]}})
    other = make_manifest(
        files=dict(reversed(FILES.items())),
        versions={"b": "2", "a": "1"},
        options={"y": {"q": [2], "p": 1}, "x": 1},
    )
    assert encode_manifest(one) == encode_manifest(other)
    assert list(json.loads(encode_manifest(one)))[:2] == ["format", "format_version"]


_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | _FLOATS | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(string.ascii_letters), _JSON, max_size=4))
def test_any_plain_options_come_back_equal(make_manifest: ManifestMaker, options: dict[str, Any]) -> None:
    manifest = make_manifest(files=FILES, options=options)
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_a_newer_format_is_refused_in_one_sentence(values: dict[str, Any]) -> None:
    values = {"format": "gpt-onnx", "format_version": FORMAT_VERSION + 1, "unheard": {"of": 1}}
    with pytest.raises(BundleError) as caught:
        decode_manifest(_encoded(values))
    assert str(caught.value) == "its format_version is 4 and this gpt-onnx reads up to 3; upgrade gpt-onnx."


def test_a_bundle_of_the_first_format_has_no_quantised_weights(values: dict[str, Any]) -> None:
    graph = {key: value for key, value in values["graph"].items() if key != "shards"}
    older = {key: value for key, value in values.items() if key != "quantization"}
    older |= {"format_version": 1, "graph": graph}
    manifest = decode_manifest(_encoded(older))
    assert (manifest.format_version, manifest.quantization) == (FORMAT_VERSION, None)


@pytest.mark.parametrize(("version", "key"), [(1, "quantization"), (2, "shards")])
def test_an_older_format_has_no_key_that_a_newer_one_brought(
    values: dict[str, Any], version: int, key: str
) -> None:
    with pytest.raises(BundleError, match=f"it has the key '{key}', which came with format_version"):
        decode_manifest(_encoded(values | {"format_version": version}))


def test_how_weights_were_quantised_comes_back_equal(make_manifest: ManifestMaker) -> None:
    manifest = make_manifest(files=FILES, precision="int4", quantization=INT4)
    assert decode_manifest(encode_manifest(manifest)) == manifest


@pytest.mark.parametrize("precision", ["int4", "int8"])
def test_a_precision_of_integers_says_how(make_manifest: ManifestMaker, precision: str) -> None:
    with pytest.raises(BundleError, match=f"precision is '{precision}' and quantization says nothing"):
        make_manifest(files=FILES, precision=precision)


@pytest.mark.parametrize(
    ("name", "value"),
    [("bits", 3), ("head_bits", 16), ("accuracy_level", 1), ("block_size", 0), ("float_weights", "all")],
)
def test_a_quantization_out_of_range_is_refused(name: str, value: object) -> None:
    fields = {
        "bits": 4,
        "block_size": 32,
        "symmetric": False,
        "accuracy_level": 4,
        "quantizer": "rtn",
        "head_bits": 4,
    }
    with pytest.raises(BundleError, match=rf"^quantization\.{name} is "):
        QuantizationInfo(**{**fields, "float_weights": [], name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON in UTF-8"),
        (b"[]", "holds a list"),
        (b"null", "holds a NoneType"),
        (b"{}", "its format is None"),
        (b'{"format": "gpt-onnx"}', "its format_version is None"),
        (b'{"format": "gpt-onnx", "format_version": true}', "its format_version is True"),
        (b'{"format": "gpt-onnx", "format_version": 0}', "its format_version is 0"),
        (b'{"format": "gpt-onnx", "format_version": 1e9}', "its format_version is 1000000000.0"),
        (b'{"format": "safetensors", "format_version": 1}', "its format is 'safetensors'"),
        (b'{"a": 1, "a": 1}', "the key 'a' occurs twice"),
        (b'{"a": {"b": 1, "b": 1}}', "the key 'b' occurs twice"),
        (b'{"a": NaN}', "NaN is a value"),
        (b'{"a": -Infinity}', "-Infinity is a value"),
        (b"[" * 200_000, "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * (1 << 20) + b"{}", "at most 1048576"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(BundleError) as caught:
        decode_manifest(content)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


WRONG: list[tuple[tuple[str, ...], object]] = [
    (("name",), ""),
    (("name",), "two\nlines"),
    (("name",), 7),
    (("target",), "CPU"),
    (("target",), "../cpu"),
    (("precision",), None),
    (("checked",), 1),
    (("compared_with_original",), "yes"),
    (("options",), []),
    (("options",), {"x": 10**400}),
    (("options",), {"x": "\ud800"}),
    (("options",), {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}}),
    (("versions",), {"torch": 2}),
    (("source_sha256",), "ABCD"),
    (("files",), {}),
    (("files",), ["onnx/model.onnx"]),
    (("files", "onnx/model.onnx"), 3),
    (("files", "onnx/model.onnx", "size"), -1),
    (("files", "onnx/model.onnx", "size"), 2.0),
    (("files", "onnx/model.onnx", "size"), 2**63),
    (("files", "onnx/model.onnx", "sha256"), "g" * 64),
    (("files", "onnx/model.onnx", "mode"), 420),
    (("graph",), None),
    (("graph", "layout"), "fixed"),
    (("graph", "layout"), ["dynamic"]),
    (("graph", "layout"), "static"),
    (("graph", "graphs"), {"prefill": "onnx/model.onnx"}),
    (("graph", "graphs", "model"), "../model.onnx"),
    (("graph", "graphs", "model"), "onnx/absent.onnx"),
    (("graph", "data"), "/etc/passwd"),
    (("graph", "data"), "onnx/model.onnx"),
    (("graph", "data"), "onnx/absent.onnx_data"),
    (("graph", "attention"), "flash"),
    (("graph", "opset"), "21"),
    (("graph", "ir_version"), 0),
    (("graph", "seq_len"), 16),
    (("graph", "batch_size"), 0),
    (("graph", "extra"), 1),
    (("model",), 5),
    (("model", "vocab_size"), 0),
    (("model", "vocab_size"), True),
    (("model", "position"), "rotary?"),
    (("model", "n_layer"), 0),
    (("model", "cache_head_size"), 4),
    (("model", "parameters"), 1.5),
    (("unknown",), 1),
]


@pytest.mark.parametrize(
    ("path", "value"), WRONG, ids=[f"{'.'.join(path)}={value!r:.30}" for path, value in WRONG]
)
def test_a_wrong_value_is_refused(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(BundleError) as caught:
        decode_manifest(_encoded(values))
    assert path[-1] in str(caught.value) or path[0] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("section", ["", "graph", "model"])
def test_a_missing_key_is_named(values: dict[str, Any], section: str) -> None:
    record = values[section] if section else values
    for key in sorted(set(record) - {"format", "format_version"}):
        kept = record.pop(key)
        with pytest.raises(BundleError, match=f"lacks the key '{key}'"):
            decode_manifest(_encoded(values))
        record[key] = kept


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd", "..", "../x", "onnx/../x", "a/b", "onnx/a/b", "onnx/", "onnx", ".hidden", "onnx/.b",
        "manifest.json", "C:x", "a\\b", "a b", "ä", "", "x" * 200, "trailing.", "nul\0", "new\nline", "-o",
    ],
)  # fmt: skip
def test_a_name_that_is_not_plain_is_refused(make_manifest: ManifestMaker, name: str) -> None:
    with pytest.raises(BundleError, match="files lists"):
        make_manifest(files=FILES | {name: ENTRY})


def test_names_that_only_case_tells_apart_are_refused(make_manifest: ManifestMaker) -> None:
    with pytest.raises(BundleError, match="only case tells apart"):
        make_manifest(files=FILES | {"config.json": ENTRY, "Config.json": ENTRY})


@pytest.mark.parametrize("position", POSITIONS)
def test_every_kind_of_position_can_be_said(make_manifest: ManifestMaker, position: str) -> None:
    model = dataclasses.replace(make_manifest().model, position=position)
    assert make_manifest(model=model).model.position == position


def test_sizes_of_the_cache_come_together(make_manifest: ManifestMaker) -> None:
    model = make_manifest().model
    assert model.cache_elements_per_token == 2 * 2 * 2 * 8
    nothing = dataclasses.replace(model, n_layer=0, n_kv_head=0, head_size=0, cache_head_size=0)
    assert make_manifest("plain", model=nothing).model.cache_elements_per_token == 0
    with pytest.raises(BundleError, match="either all of them are positive"):
        dataclasses.replace(model, n_kv_head=0)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 2000), st.binary(max_size=6), st.integers(0, 6))
def test_a_spliced_manifest_is_read_or_refused(
    values: dict[str, Any], start: int, inserted: bytes, dropped: int
) -> None:
    content = _encoded(values)
    with contextlib.suppress(BundleError):
        decode_manifest(content[:start] + inserted + content[start + dropped :])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_json_for_any_key_is_read_or_refused(values: dict[str, Any], data: st.DataObject) -> None:
    values = copy.deepcopy(values)
    record = data.draw(st.sampled_from([values, values["graph"], values["model"], values["files"]]))
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(_JSON)
    with contextlib.suppress(BundleError):
        decode_manifest(_encoded(values))
