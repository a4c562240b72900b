"""What a browser can hold: shards of weights in order; a weight that is too large is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.bundle import check_graph, open_bundle, seal
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import BundleError, ExportError
from gpt_onnx.export import TARGETS, export_bundle, plan_export, targets
from gpt_onnx.export.limits import too_large
from gpt_onnx.export.weights import shard_name
from gpt_onnx.model import GPT
from gpt_onnx.runtime import OnnxGPT

SIZES = {"vocab_size": 97, "context_length": 64, "n_embd": 64, "n_layer": 2, "n_head": 4}
FILE = 120_000


def _gpt() -> GPT:
    return GPT(GPTConfig.from_dict(SIZES)).eval()


def _limited(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    small = {**TARGETS, "web": dataclasses.replace(TARGETS["web"], **limits)}
    monkeypatch.setattr(targets, "TARGETS", small)


@pytest.fixture
def sharded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A bundle whose weights take more than one file."""
    _limited(monkeypatch, max_file_bytes=FILE)
    export_bundle(_gpt(), tmp_path / "sharded", target="web", check="none")
    return tmp_path / "sharded"


def test_files_are_named_as_transformers_js_counts_them(sharded: Path) -> None:
    graph = open_bundle(sharded).manifest.graph
    names = [f"onnx/{shard_name('model.onnx_data', index)}" for index in range(len(graph.data_files))]
    assert graph.data_files == names
    assert names[:3] == ["onnx/model.onnx_data", "onnx/model.onnx_data_1", "onnx/model.onnx_data_2"]
    assert all(0 < (sharded / name).stat().st_size <= FILE for name in names)


def test_a_bundle_of_shards_is_in_order_and_computes_the_same(
    sharded: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_graph(open_bundle(sharded))
    gpt, ids = _gpt(), [[1, 2, 3, 4, 5, 6, 7]]
    export_bundle(gpt, tmp_path / "many", target="web", check="none")
    monkeypatch.undo()
    export_bundle(gpt, tmp_path / "one", target="web", check="none")
    many, one = (OnnxGPT.load(tmp_path / name) for name in ("many", "one"))
    assert len(many.bundle.manifest.graph.data_files) > 1 == len(one.bundle.manifest.graph.data_files)
    np.testing.assert_array_equal(many.logits(ids), one.logits(ids))


def _damaged(folder: Path, edit: Any) -> None:
    manifest = open_bundle(folder).manifest
    edit(folder)
    seal(folder, manifest)


def test_bytes_behind_the_last_weight_of_any_shard_are_refused(sharded: Path) -> None:
    def edit(folder: Path) -> None:
        with (folder / "onnx/model.onnx_data_1").open("ab") as file:
            file.write(b"\1\2\3")

    _damaged(sharded, edit)
    with pytest.raises(BundleError, match=r"model\.onnx_data_1 does not fit its graphs: its last 3 bytes"):
        check_graph(open_bundle(sharded))


def test_a_damaged_shard_is_found_by_its_hash(sharded: Path) -> None:
    path = sharded / "onnx/model.onnx_data_1"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"model\.onnx_data_1 is damaged"):
        OnnxGPT.load(sharded)


def test_a_shard_that_the_manifest_does_not_name_is_refused(sharded: Path) -> None:
    path = sharded / "manifest.json"
    values = json.loads(path.read_text())
    values["graph"]["shards"].pop()
    path.write_text(json.dumps(values))
    with pytest.raises(BundleError, match=r"is not a graph that may run: weight .* is in"):
        check_graph(open_bundle(sharded))


def test_a_weight_that_is_too_large_is_refused_with_what_helps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _limited(monkeypatch, max_tensor_bytes=50_000)
    with pytest.raises(ExportError) as caught:
        export_bundle(_gpt(), tmp_path / "b", target="web", check="none")
    assert str(caught.value).endswith(
        "takes 0.1 MB and a weight of target web at most 0.1 MB; "
        "choose --precision fp16 or --precision int8 or --precision int4 --head-precision int4."
    )
    assert not (tmp_path / "b").exists()
    export_bundle(_gpt(), tmp_path / "b", target="web", precision="fp16", check="none")


def test_a_plan_says_so_before(monkeypatch: pytest.MonkeyPatch) -> None:
    _limited(monkeypatch, max_tensor_bytes=50_000)
    assert any("at most 0.1 MB" in note for note in plan_export(_gpt(), target="web").notes)
    assert not any("at most" in note for note in plan_export(_gpt(), target="web", precision="fp16").notes)


@pytest.mark.parametrize(("size", "refused"), [(2**28, False), (2**28 + 1, True)])
def test_the_limit_of_a_browser_is_a_buffer_of_webgpu(size: int, refused: bool) -> None:
    assert (too_large("wte.weight", size, TARGETS["web"], 32) is not None) == refused
    assert too_large("wte.weight", size, TARGETS["cpu"], 32) is None


@pytest.mark.parametrize(
    ("size", "bits", "advice"),
    [
        (2**29 + 4, 32, "choose --precision int8 or --precision int4 --head-precision int4."),
        (2**30 + 4, 32, "choose --precision int4 --head-precision int4."),
        (2**29, 8, "choose --precision int4 --head-precision int4."),
        (2**28 + 1, 4, "no precision makes it small enough; choose a model with a smaller vocabulary."),
        (2**31 + 8, 32, "no precision makes it small enough; choose a model with a smaller vocabulary."),
    ],
)
def test_only_what_makes_a_weight_small_enough_is_advised(size: int, bits: int, advice: str) -> None:
    told = too_large("wte.weight", size, TARGETS["web"], bits)
    assert told is not None
    assert told.split("; ", 1)[1] == advice
