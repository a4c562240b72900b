"""A bundle whose integer weights WebAssembly multiplies slowly is told so, and built all the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from gpt_onnx.web._advice import FLOAT_BYTES, MAX_UNFOLDED_BYTES, advice_on
from tests.integer_weights import INT4


@pytest.mark.parametrize("target", ["cpu", "web"])
def test_fused_integers_are_advised_to_be_portable(make_manifest: Callable[..., Any], target: str) -> None:
    manifest = make_manifest("dynamic", "gqa", target=target, precision="int4", quantization=INT4)
    assert advice_on(manifest) == (
        f"toy is int4 of target {target}, whose products are slow in WebAssembly: exported with --target "
        "portable, it writes about eight times as fast in this page."
    )


def test_portable_integers_and_floats_of_any_target_need_no_advice(make_manifest: Callable[..., Any]) -> None:
    portable = make_manifest("dynamic", "decomposed", target="portable", precision="int4", quantization=INT4)
    assert advice_on(portable) is None
    assert advice_on(make_manifest("dynamic", "gqa", target="web")) is None


def test_a_model_that_the_page_does_not_unfold_is_not_sent_there(make_manifest: Callable[..., Any]) -> None:
    manifest = make_manifest("dynamic", "gqa", target="web", precision="int4", quantization=INT4)
    most = MAX_UNFOLDED_BYTES // FLOAT_BYTES
    for parameters, is_advised in ((most, True), (most + 1, False)):
        model = dataclasses.replace(manifest.model, parameters=parameters)
        assert (advice_on(manifest.replace(model=model)) is not None) == is_advised


def test_the_page_unfolds_as_many_bytes() -> None:
    worker = (files("gpt_onnx.web") / "site" / "worker.js").read_text(encoding="utf-8")
    assert f"const MAX_UNFOLDED_BYTES = {MAX_UNFOLDED_BYTES:_};" in worker
