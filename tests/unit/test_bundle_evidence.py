"""quality.json and parity.json: one strict reader, whoever asks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpt_onnx.bundle import Parity, QualityFigures, read_parity, read_quality
from gpt_onnx.errors import BundleError
from gpt_onnx.runtime.bench.bundle_facts import mean_kl
from gpt_onnx.runtime.verify import _check_others

QUALITY: dict[str, Any] = {
    "kl": {"mean": {"value": 0.03, "error": 0.001}, "median": 0.01},
    "ratio": {"value": 1.01, "error": 0.002},
    "same_top": {"value": 0.9, "error": 0.01},
    "tokens": 20_480,
}
PARITY: dict[str, Any] = {
    "level": "quick",
    "summary": {
        "cases": 41,
        "skipped": 1,
        "median_ratio": 1.2,
        "worst_ratio": 2.7,
        "worst_rms_ratio": None,
    },
}


def bundle_with(folder: Path, name: str, content: str) -> Any:
    """What the readers look at of a bundle."""
    (folder / name).write_text(content)
    manifest = SimpleNamespace(precision="int4", files={name: None})
    return SimpleNamespace(path=folder, manifest=manifest, file=lambda relative: folder / relative)


def test_figures_are_those_of_the_file(tmp_path: Path) -> None:
    quality = bundle_with(tmp_path, "quality.json", json.dumps(QUALITY))
    expected = QualityFigures(kl_mean=0.03, perplexity_ratio=1.01, same_top=0.9, tokens=20_480)
    assert read_quality(quality) == expected
    assert read_parity(quality) is None
    parity = bundle_with(tmp_path, "parity.json", json.dumps(PARITY))
    assert read_parity(parity) == Parity(level="quick", **PARITY["summary"])
    assert read_quality(parity) is None


def test_a_perplexity_beyond_float64_is_no_fault(tmp_path: Path) -> None:
    found = read_quality(
        bundle_with(tmp_path, "quality.json", json.dumps(QUALITY | {"ratio": {"value": None}}))
    )
    assert found is not None
    assert found.perplexity_ratio is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "it is not JSON in UTF-8"),
        ("[]", "it holds a list"),
        (json.dumps({key: value for key, value in QUALITY.items() if key != "kl"}), "lacks kl.mean.value"),
        (json.dumps(QUALITY | {"kl": {"mean": 0.03}}), "lacks kl.mean.value, a finite number"),
        (json.dumps(QUALITY | {"kl": {"mean": {"value": "0.03"}}}), "kl.mean.value is '0.03'"),
        (json.dumps(QUALITY | {"kl": {"mean": {"value": True}}}), "kl.mean.value is True"),
        (json.dumps(QUALITY).replace("0.03", "NaN"), "NaN is a value"),
        (json.dumps(QUALITY | {"same_top": {"value": 1.5}}), "same_top.value is 1.5"),
        (json.dumps(QUALITY | {"tokens": 0}), "tokens is 0; it must be an integer of at least 1"),
        (json.dumps(QUALITY | {"tokens": 2.5}), "tokens is 2.5"),
        (json.dumps(QUALITY | {"ratio": {"value": -1}}), "ratio.value is -1"),
    ],
)
@pytest.mark.parametrize("reader", [read_quality, mean_kl])
def test_what_an_export_does_not_write_is_refused_by_file_and_figure(
    tmp_path: Path, content: str, says: str, reader: Any
) -> None:
    with pytest.raises(BundleError, match=f"quality.json cannot be understood: .*{says}"):
        reader(bundle_with(tmp_path, "quality.json", content))


def test_verify_reads_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_onnx.runtime.verify.check_tokenizer", lambda bundle: None)
    _check_others(bundle_with(tmp_path, "parity.json", json.dumps(PARITY)))
    with pytest.raises(BundleError, match=r"parity\.json cannot be understood: it lacks summary\.cases"):
        _check_others(bundle_with(tmp_path, "parity.json", '{"level": "quick"}'))
