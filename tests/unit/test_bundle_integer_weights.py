"""A manifest that lies about integer weights is refused, whoever opens the bundle."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.bundle import Bundle, check_graph, describe_bundle, open_bundle, seal
from gpt_onnx.errors import BundleError
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime.verify import verify_files

SIZES: dict[str, Any] = {"n_embd": 32, "n_head": 2, "n_layer": 1}
OPTIONS: dict[str, Any] = {"precision": "int4", "quantizer": "rtn", "block_size": 16}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fused": ({}, {}),
    "standard": ({}, {"target": "portable"}),
    "own head": ({"tie_embeddings": False}, {}),
    "head in float": ({}, {"head_precision": "fp32"}),
    "rotary, static": ({"position": "rotary", "norm": "rmsnorm"}, {"seq_len": 8}),
}
"""What differs in the model, and in the options of the export."""


@pytest.fixture
def made(exported: Callable[..., Any]) -> Callable[[str], Bundle]:
    """An int4 bundle of a kind."""

    def make(kind: str) -> Bundle:
        model, options = KINDS[kind]
        return open_bundle(exported(SIZES | model, **OPTIONS, **options).path)

    return make


def saying(bundle: Bundle, **told: Any) -> Bundle:
    """The same files, whose manifest says something else of them."""
    assert bundle.manifest.quantization is not None
    info = dataclasses.replace(bundle.manifest.quantization, **told)
    precision = f"int{info.bits}"
    return dataclasses.replace(
        bundle, manifest=bundle.manifest.replace(quantization=info, precision=precision)
    )


def refused(bundle: Bundle) -> str:
    with pytest.raises(BundleError) as caught:
        check_graph(bundle)
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_export_says_is_true(made: Callable[[str], Bundle], kind: str) -> None:
    check_graph(made(kind))


@pytest.mark.parametrize(
    ("kind", "told", "says"),
    [
        ("fused", {"bits": 8, "head_bits": 4}, "quantization.head_bits is 4 and node .* says 8"),
        ("fused", {"bits": 8}, "quantization.bits is 8 and node .* says 4"),
        ("fused", {"block_size": 32}, "quantization.block_size is 32 and node .* says 16"),
        ("fused", {"symmetric": True}, "quantization.symmetric is true and node .* says false"),
        ("fused", {"accuracy_level": 0}, "quantization.accuracy_level is 0 and node .* says 4"),
        ("fused", {"head_bits": 32}, "quantization.head_bits is 32 and node .* says 8"),
        ("own head", {"head_bits": 4}, "quantization.head_bits is 4 and node .* says 8"),
        ("standard", {"bits": 8}, "quantization.bits is 8 and node .* says 4"),
        ("standard", {"block_size": 32}, "quantization.block_size is 32 and node .* says 16"),
        ("standard", {"head_bits": 4}, "quantization.head_bits is 4 and node .* says 8"),
        ("head in float", {"head_bits": 8}, "quantization.head_bits is 8 and the head is read as floats"),
        ("rotary, static", {"block_size": 128}, "quantization.block_size is 128 and node .* says 16"),
    ],
)
def test_a_field_that_lies_is_named_with_both_values(
    made: Callable[[str], Bundle], kind: str, told: dict[str, Any], says: str
) -> None:
    with pytest.raises(BundleError, match=f"{says}.*export the bundle again"):
        check_graph(saying(made(kind), **told))


def test_float_weights_are_all_there_and_all_told(made: Callable[[str], Bundle]) -> None:
    bundle = made("fused")
    assert bundle.manifest.quantization is not None
    names = bundle.manifest.quantization.float_weights
    more = saying(bundle, float_weights=[*names, "h.*.attn.c_attn.weight"])
    assert "float_weights has 'h.*.attn.c_attn.weight', which the graph does not" in refused(more)
    for name in names:
        fewer = [other for other in names if other != name]
        assert "does not have it" in refused(saying(bundle, float_weights=fewer))


def test_integers_that_no_manifest_tells_of_are_refused(made: Callable[[str], Bundle]) -> None:
    bundle = made("fused")
    manifest = bundle.manifest.replace(quantization=None, precision="fp32")
    assert "the manifest's precision is fp32" in refused(dataclasses.replace(bundle, manifest=manifest))


def test_a_manifest_that_tells_of_integers_where_there_are_none_is_refused(
    made: Callable[[str], Bundle], exported: Callable[..., Any]
) -> None:
    bundle, info = open_bundle(exported(SIZES).path), made("fused").manifest.quantization
    manifest = bundle.manifest.replace(quantization=info, precision="int4")
    says = "quantization.bits is 4 and no node reads integers"
    assert says in refused(dataclasses.replace(bundle, manifest=manifest))


@pytest.mark.parametrize(
    "opener", [verify_files, OnnxGPT.load, lambda path: describe_bundle(open_bundle(path))]
)
def test_verify_load_and_inspect_refuse_it(
    made: Callable[[str], Bundle], tmp_path: Path, opener: Callable[[Path], object]
) -> None:
    bundle = made("fused")
    path = Path(shutil.copytree(bundle.path, tmp_path / "lying"))
    seal(path, saying(bundle, block_size=64).manifest)
    with pytest.raises(BundleError, match=r"quantization\.block_size is 64"):
        opener(path)
