"""The order of the passes, and what they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpt_onnx.export import passes
from gpt_onnx.export.passes import CACHED_PASSES, PASSES, run_passes


def test_exported_names() -> None:
    assert sorted(passes.__all__) == [
        "CACHED_PASSES",
        "KEEP",
        "PASSES",
        "Pass",
        "STORED_TRANSPOSED",
        "run_passes",
    ]


def test_counts_are_summed_by_name(parse: Any) -> None:
    model = parse("(float[2] x) => (float[2] y) { a = Identity(x)\n b = Sin(a)\n y = Tanh(a) }")
    fired = run_passes(model, PASSES)
    assert fired["tidy"] == 2
    assert set(fired) == {rewrite.__name__ for rewrite in PASSES}


def test_the_cut_comes_before_the_head_is_rewritten() -> None:
    names = [rewrite.__name__ for rewrite in CACHED_PASSES]
    assert names.index("keep_logits") < names.index("gemm_head") < names.index("transpose_weights")
    assert [name for name in names if name != "keep_logits"] == [rewrite.__name__ for rewrite in PASSES]


def test_an_export_reports_how_often_each_fired(exported: Any) -> None:
    rewrites = exported().rewrites
    assert set(rewrites) == {rewrite.__name__ for rewrite in CACHED_PASSES}
    assert rewrites["gemm_head"] == rewrites["keep_logits"] == 1
    assert rewrites["transpose_weights"] == 8  # four matrices in each of two layers


def test_the_documentation_has_every_pass() -> None:
    page = (Path(__file__).parents[2] / "docs" / "graph.md").read_text(encoding="utf-8")
    table = page.split("## Passes")[1].split("##")[0]
    described = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert described == {rewrite.__name__ for rewrite in CACHED_PASSES}
