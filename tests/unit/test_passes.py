"""The order of the passes, and what they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpt_onnx.export import passes
from gpt_onnx.export.passes import Pass, QuantizeWeights, fused, passes_of, run_passes
from gpt_onnx.export.quantize.choice import Choice

PLAIN = passes_of(keeps_logits=False, fuses=False, quantize=None)
FUSED = passes_of(keeps_logits=True, fuses=True, quantize=None)


def _names(chosen: tuple[Pass, ...]) -> list[str]:
    return [rewrite.__name__ for rewrite in chosen]


def _quantize() -> QuantizeWeights:
    choice = Choice(
        bits=4, head_bits=4, symmetric=False, block_sizes=(32,), accuracy_level=4, quantizer="rtn"
    )
    return QuantizeWeights(choice, fused)


def test_exported_names() -> None:
    assert sorted(passes.__all__) == [
        "FORMS",
        "KEEP",
        "Pass",
        "QuantizeWeights",
        "STORED_TRANSPOSED",
        "fused",
        "passes_of",
        "run_passes",
        "standard",
    ]


def test_counts_are_summed_by_name(parse: Any) -> None:
    model = parse("(float[2] x) => (float[2] y) { a = Identity(x)\n b = Sin(a)\n y = Tanh(a) }")
    fired = run_passes(model, PLAIN)
    assert fired["tidy"] == 2
    assert set(fired) == set(_names(PLAIN))


def test_the_cut_comes_before_the_head_is_rewritten() -> None:
    names = _names(passes_of(keeps_logits=True, fuses=True, quantize=_quantize()))
    order = [
        names.index(name) for name in ("keep_logits", "quantize_weights", "gemm_head", "skip_layer_norm")
    ]
    assert order == sorted(order)


def test_float16_comes_behind_all_that_looks_for_products_and_before_older_operators() -> None:
    names = _names(passes_of(keeps_logits=True, fuses=True, quantize=None, half=True, opset=17))
    order = [names.index(name) for name in ("transpose_weights", "skip_layer_norm", "half_products")]
    assert order == sorted(order)
    assert names.index("half_products") < names.index("lower_opset")


def test_standard_operators_alone_are_not_fused() -> None:
    assert set(_names(FUSED)) - set(_names(PLAIN)) == {"keep_logits", "skip_layer_norm"}


def test_an_export_reports_how_often_each_fired(exported: Any) -> None:
    rewrites = exported().rewrites
    assert set(rewrites) == set(_names(FUSED))
    assert rewrites["gemm_head"] == rewrites["keep_logits"] == 1
    assert rewrites["transpose_weights"] == 8  # four matrices in each of two layers
    assert rewrites["skip_layer_norm"] == 5  # two in each layer, and the last norm


def test_the_documentation_has_every_pass() -> None:
    page = (Path(__file__).parents[2] / "docs" / "graph.md").read_text(encoding="utf-8")
    table = page.split("## Passes")[1].split("##")[0]
    described = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    others = {"quantize_weights", "integer_angles", "half_products", "lower_opset"}  # of some targets
    assert described == {*_names(FUSED), *others}
