"""What no browser can run is refused in one sentence, before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpt_onnx.web._fit as fit
from gpt_onnx.bundle import GraphInfo, Manifest, open_bundle
from gpt_onnx.errors import BundleError

BundleMaker = Callable[..., Path]
GRAPH: dict[str, Any] = {
    "layout": "dynamic",
    "graphs": {"model": "onnx/model.onnx"},
    "data": "onnx/model.onnx_data",
    "attention": "decomposed",
    "opset": 21,
    "ir_version": 10,
}


def _refusal(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        fit.check_fit(open_bundle(path))
    return str(caught.value).removeprefix(f"{path} cannot run in a browser: ")


@pytest.mark.parametrize(
    ("layout", "attention"), [("dynamic", "decomposed"), ("dynamic", "gqa"), ("plain", "traced")]
)
def test_layouts_that_grow_fit(make_bundle: BundleMaker, layout: str, attention: str) -> None:
    fit.check_fit(open_bundle(make_bundle("toy", layout, attention)))


def test_static_graphs_are_refused(make_bundle: BundleMaker) -> None:
    assert _refusal(make_bundle(layout="static")) == (
        "its graph is frozen to 16 tokens; export it with --seq-len dynamic."
    )


def test_frozen_batches_are_refused(make_bundle: BundleMaker) -> None:
    path = make_bundle(graph=GraphInfo(**GRAPH, batch_size=3))
    assert _refusal(path) == "its graph is frozen to 3 rows; export it with --batch-size dynamic."


def test_other_targets_are_refused(make_bundle: BundleMaker) -> None:
    assert _refusal(make_bundle(target="cuda")) == "it is made for cuda; export it with --target web."


def test_large_weights_are_refused(make_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_bundle()
    size = open_bundle(path).manifest.files["onnx/model.onnx_data"].size
    monkeypatch.setattr(fit, "MAX_FILE_BYTES", size)
    fit.check_fit(open_bundle(path))
    monkeypatch.setattr(fit, "MAX_FILE_BYTES", size - 1)
    assert _refusal(path).startswith(
        f"its weights have {size:,} bytes and a browser takes at most {size - 1:,};"
    )


def test_large_tensors_are_refused(make_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_bundle()
    monkeypatch.setattr(fit, "MAX_TENSOR_BYTES", 11 * 16 * 4 - 1)  # the embedding's bytes, less one
    assert _refusal(path).startswith("its weight wte.weight has 704 bytes and a browser takes at most 703;")


def test_logits_of_another_type_are_refused(
    make_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "LOGITS", "float16")
    assert _refusal(make_bundle()) == "its logits are of type float32 and the page reads float16."


def test_graphs_are_checked_first(make_bundle: BundleMaker) -> None:
    def rename(model: Any) -> None:
        model.graph.output[0].name = model.graph.node[1].output[0] = "others"

    with pytest.raises(BundleError, match="is not a graph that may run"):
        fit.check_fit(open_bundle(make_bundle(edit=rename)))


def test_manifests_know_their_shards(make_manifest: Callable[..., Manifest]) -> None:
    manifest = make_manifest()
    assert manifest.graph.data_files == ["onnx/model.onnx_data"]
