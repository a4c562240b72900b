"""quality.json and parity.json: one strict reader, whoever asks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpt_onnx.bundle import Parity, QualityFigures, check_evidence, read_parity, read_quality
from gpt_onnx.bundle._evidence_cases import FORMAT_VERSION, TERMS
from gpt_onnx.errors import BundleError
from gpt_onnx.runtime.bench.bundle_facts import mean_kl

HASHES = {"onnx/model.onnx": "ab" * 32, "onnx/model.onnx_data": "cd" * 32}
VERSIONS = {"torch": "2.13.0"}
QUALITY: dict[str, Any] = {
    "against": "fp32",
    "sha256": HASHES,
    "ln_ratio": {"value": math.log(1.01), "error": 0.002},
    "kl": {"mean": {"value": 0.03, "error": 0.001}, "median": 0.01},
    "ratio": {"value": 1.01, "error": 0.002},
    "same_top": {"value": 0.9, "error": 0.01},
    "tokens": 20_480,
    "text": "a text",
}
CASES: list[dict[str, Any]] = [
    {"group": "lengths", "name": "1 token", "passed": True, "ratio": 2.7, "rms_ratio": 1.5},
    {"group": "lengths", "name": "9 tokens", "passed": True, "ratio": 1.2, "rms_ratio": 1.6},
    {"group": "greedy", "name": "8 tokens", "passed": True, "near_ties": 2},
    {"group": "original", "name": "all", "passed": True, "skipped": "it has no such position"},
]
PARITY: dict[str, Any] = {
    "format_version": 1,
    "passed": True,
    "provider": "cpu",
    "reference": {"name": "GPT", "dtype": "float64"},
    "tolerance": {"unit": "what float32 costs", "floor": 2.0**-21, "max_factor": 4.0, "rms_factor": 3.0},
    "seed": 1,
    "level": "quick",
    "compared_with_original": False,
    "versions": VERSIONS,
    "sha256": HASHES,
    "summary": {
        "cases": 4,
        "skipped": 1,
        "failed": 0,
        "median_ratio": 1.95,
        "worst_ratio": 2.7,
        "worst_rms_ratio": 1.6,
        "near_ties": 2,
    },
    "cases": CASES,
}
TOLD = ("cases", "skipped", "median_ratio", "worst_ratio", "worst_rms_ratio")


def bundle_with(folder: Path, name: str, content: str, **said: Any) -> Any:
    """What the readers look at of a bundle; ``said`` are fields of its manifest."""
    (folder / name).write_text(content)
    files = {path: SimpleNamespace(sha256=sha256) for path, sha256 in HASHES.items()}
    values: dict[str, Any] = {
        "precision": "int4" if name == "quality.json" else "fp32",
        "checked": name == "parity.json",
        "compared_with_original": False,
        "options": {"check": "quick" if name == "parity.json" else "none"},
        "versions": VERSIONS,
        "graph": SimpleNamespace(paths=list(HASHES)),
        "files": files | {name: None, "reference.safetensors": None},
    }
    if name == "quality.json":
        del values["files"]["reference.safetensors"]
    manifest = SimpleNamespace(**(values | said))
    return SimpleNamespace(path=folder, manifest=manifest, file=lambda relative: folder / relative)


def test_figures_are_those_of_the_file(tmp_path: Path) -> None:
    quality = bundle_with(tmp_path, "quality.json", json.dumps(QUALITY))
    expected = QualityFigures(
        kl_mean=0.03,
        ln_perplexity_ratio=math.log(1.01),
        perplexity_ratio=1.01,
        same_top=0.9,
        tokens=20_480,
        text="a text",
    )
    assert read_quality(quality) == expected
    assert read_parity(quality) is None
    parity = bundle_with(tmp_path, "parity.json", json.dumps(PARITY))
    assert read_parity(parity) == Parity(level="quick", **{name: PARITY["summary"][name] for name in TOLD})
    assert read_quality(parity) is None


@pytest.mark.parametrize("logarithm", [2000.0, -2000.0])
def test_a_perplexity_beyond_float64_is_told_by_its_logarithm(tmp_path: Path, logarithm: float) -> None:
    told = {"ratio": {"value": None}, "ln_ratio": {"value": logarithm}}
    found = read_quality(bundle_with(tmp_path, "quality.json", json.dumps(QUALITY | told)))
    assert found is not None
    assert (found.perplexity_ratio, found.ln_perplexity_ratio) == (None, logarithm)


LIES: dict[str, dict[str, Any]] = {
    "passed": {"passed": False},
    "level": {"level": "deep"},
    "compared_with_original": {"compared_with_original": True},
    "versions": {"versions": {"torch": "1.0"}},
    "the hash of onnx/model.onnx_data": {"sha256": HASHES | {"onnx/model.onnx_data": "ef" * 32}},
    "the hash of onnx/model.onnx": {"sha256": None},
    "summary.cases": {"cases": CASES[1:]},
    "summary.failed": {"cases": [CASES[0] | {"passed": False, "fault": "NaN"}, *CASES[1:]]},
    "summary.worst_ratio": {"cases": [CASES[0] | {"ratio": 3.9}, *CASES[1:]]},
    "summary.worst_rms_ratio": {"cases": [CASES[0] | {"rms_ratio": 2.9}, *CASES[1:]]},
    "summary.median_ratio": {"summary": {"median_ratio": 1.0}},
    "summary.skipped": {"summary": {"skipped": True}},
    "summary.near_ties": {"summary": {"near_ties": -1}},
    "cases": {"cases": {}},
    "format_version": {"format_version": 2},
    "seed": {"seed": "1"},
    "provider": {"provider": None},
    "reference.dtype": {"reference": {"name": "GPT", "dtype": "float16"}},
    "tolerance.max_factor": {"tolerance": PARITY["tolerance"] | {"max_factor": 1e9}},
    "tolerance.rms_factor": {"tolerance": PARITY["tolerance"] | {"rms_factor": None}},
    "tolerance.floor": {"tolerance": PARITY["tolerance"] | {"floor": 1.0}},
    "tolerance": {"tolerance": 4.0},
}
"""What a parity.json says that is none of its bundle, or none of its own cases, by what is to be named."""


@pytest.mark.parametrize("named", LIES)
def test_evidence_of_another_bundle_is_refused(tmp_path: Path, named: str) -> None:
    told = LIES[named]
    summary = PARITY["summary"] | told.get("summary", {})
    content = json.dumps(PARITY | told | {"summary": summary})
    with pytest.raises(
        BundleError, match=rf"parity\.json cannot be understood: (it lacks )?{named}(\.\w+| is)"
    ):
        read_parity(bundle_with(tmp_path, "parity.json", content))


ODD_CASES: list[tuple[dict[str, Any], str]] = [
    ({"ratio": 9.0}, r"cases\[0\]\.passed is True; of this bundle it must be False"),
    ({"rms_ratio": 3.1}, r"cases\[0\]\.passed is True; of this bundle it must be False"),
    ({"fault": "NaN"}, r"cases\[0\]\.passed is True; of this bundle it must be False"),
    ({"passed": False}, r"cases\[0\]\.passed is False; of this bundle it must be True"),
    ({"passed": 1}, r"cases\[0\]\.passed is 1; it must be true or false"),
    ({"ratio": -1.0}, r"cases\[0\]\.ratio is -1\.0; it must be a number of at least 0"),
    ({"ratio": None}, r"cases\[0\]\.ratio is None"),
    ({"ratio": "1.0"}, r"cases\[0\]\.ratio is '1\.0'"),
    ({"ratio": 10**400}, r"cases\[0\]\.ratio is 1000"),
    ({"ratio": True}, r"cases\[0\]\.ratio is True"),
    ({"near_ties": -3}, r"cases\[0\]\.near_ties is -3; it must be an integer of at least 1"),
    ({"skipped": None}, r"cases\[0\]\.skipped is None; it must be a string"),
    ({"skipped": "no"}, r"cases\[0\] was skipped and has ratio"),
    ({"name": 3}, r"cases\[0\]\.name is 3; it must be a string"),
]


@pytest.mark.parametrize(("changed", "says"), ODD_CASES)
def test_a_case_that_contradicts_itself_is_refused(
    tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    content = json.dumps(PARITY | {"cases": [CASES[0] | changed, *CASES[1:]]})
    with pytest.raises(BundleError, match=says):
        read_parity(bundle_with(tmp_path, "parity.json", content))


PASSED = {"passed": True}
NOTHING: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no case": ([], "none of its 0 cases compared numbers"),
    "skipped ones alone": ([CASES[3]], "none of its 1 cases compared numbers"),
    "tokens alone": ([CASES[2]], "none of its 1 cases compared numbers"),
    "no name": ([PASSED], r"cases\[0\] lacks group"),
    "no numbers": ([{"group": "lengths", "name": "1 token", **PASSED}], r"cases\[0\] lacks ratio"),
    "half of them": ([{"group": "ids", "name": "all", "ratio": 1.0, **PASSED}], "lacks rms_ratio"),
    "of a new group": ([{"group": "weather", "name": "fair", **PASSED}], r"cases\[0\] lacks ratio"),
}
"""Cases that say that all is well, and nothing by which that could be told."""


@pytest.mark.parametrize("kind", NOTHING)
def test_evidence_that_compared_nothing_is_refused(tmp_path: Path, kind: str) -> None:
    cases, says = NOTHING[kind]
    with pytest.raises(BundleError, match=says):
        read_parity(bundle_with(tmp_path, "parity.json", json.dumps(PARITY | {"cases": cases})))


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("greedy", "16 tokens, batch 1"),
        ("exact products", "greedy: 16 tokens, batch 2"),
        ("weights", "as the manifest says"),
        ("lengths", "65 tokens are refused"),
    ],
)
def test_what_compares_no_numbers_needs_none(tmp_path: Path, group: str, name: str) -> None:
    told = {"cases": [*CASES, {"group": group, "name": name, **PASSED}]}
    summary = PARITY["summary"] | {"cases": 5}
    content = json.dumps(PARITY | told | {"summary": summary})
    assert read_parity(bundle_with(tmp_path, "parity.json", content)) is not None


def test_the_terms_of_acceptance_are_those_of_the_gate() -> None:
    from gpt_onnx.export.gate import report, tolerance

    assert report.FORMAT_VERSION == FORMAT_VERSION
    assert TERMS == {
        "max_factor": tolerance.MAX_FACTOR,
        "rms_factor": tolerance.RMS_FACTOR,
        "floor": tolerance.FLOOR,
    }


def test_a_ratio_that_is_not_that_of_its_logarithm_is_refused(tmp_path: Path) -> None:
    content = json.dumps(QUALITY | {"ratio": {"value": 1.0}})
    with pytest.raises(BundleError, match=r"ratio\.value is 1\.0; of this bundle it must be 1\.01"):
        read_quality(bundle_with(tmp_path, "quality.json", content))


@pytest.mark.parametrize(
    ("name", "content", "said", "says"),
    [
        ("parity.json", PARITY, {"checked": False}, "says checked = false and options.check = 'quick'"),
        (
            "parity.json",
            PARITY,
            {"checked": False, "options": {"check": "none"}},
            "has a parity.json and its manifest says checked = false",
        ),
        ("parity.json", PARITY, {"precision": "int8"}, "has no quality.json and its manifest says precision"),
        (
            "quality.json",
            QUALITY,
            {"precision": "fp32"},
            "has a quality.json and its manifest says precision",
        ),
        (
            "quality.json",
            QUALITY,
            {"checked": True, "options": {"check": "deep"}},
            "has no parity.json and its manifest says checked = true",
        ),
    ],
)
def test_there_is_as_much_evidence_as_the_manifest_says(
    tmp_path: Path, name: str, content: Any, said: dict[str, Any], says: str
) -> None:
    check_evidence(bundle_with(tmp_path, name, json.dumps(content)))
    with pytest.raises(BundleError, match=says):
        check_evidence(bundle_with(tmp_path, name, json.dumps(content), **said))


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
