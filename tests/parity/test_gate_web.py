"""The gate passes what target web has of its own: angles without float64, lookups of bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.bundle import open_bundle
from gpt_onnx.export import export_bundle


@pytest.mark.parametrize(("precision", "tied"), [("int4", True), ("int8", False)])
def test_integers_of_target_web_pass(make_gpt: Any, tmp_path: Path, precision: str, tied: bool) -> None:
    gpt = make_gpt(position="rotary", norm="rmsnorm", tie_embeddings=tied)
    options: dict[str, Any] = {"precision": precision, "quantizer": "rtn", "block_size": 16}
    export_bundle(gpt, tmp_path / "bundle", target="web", check="quick", **options)
    bundle = open_bundle(tmp_path / "bundle")
    assert bundle.manifest.checked
    assert b"GatherBlockQuantized" not in bundle.graph_path("model").read_bytes()
