"""onnxruntime-genai, oldest to newest: its own tokenizer, its own loop and cache, text to text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import GENAI
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.interop._known import NEW_TOKENS
from tests.interop._models import NAMES, SHIPPED
from tests.interop._running import check_alone_and_together, environment_of, run_order, versions

PROGRAM = "genai_generate.py"


@pytest.fixture(params=versions(GENAI))
def python(request: pytest.FixtureRequest) -> Path:
    return environment_of(GENAI, request.param)


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_the_same(bundles: Any, python: Path, name: str, precision: str) -> None:
    check_alone_and_together(python, PROGRAM, bundles(name, precision))


def test_a_graph_whose_cache_grows_by_concatenation_runs(bundles: Any, python: Path) -> None:
    check_alone_and_together(python, PROGRAM, bundles("sinusoidal", target="portable"))


def test_half_precision_runs(bundles: Any, python: Path) -> None:
    check_alone_and_together(python, PROGRAM, bundles("gpt2", "fp16", "portable"))


PROMPT = [1, 2, 3]


def test_a_bundle_without_a_tokenizer_runs_by_ids(bundles_folder: Path, python: Path) -> None:
    bundle = bundles_folder / "no-tokenizer"
    if not bundle.exists():
        export_bundle(SHIPPED, bundle, check="none", tokenizer="none")
    ours = OnnxGPT.load(bundle).generate([PROMPT], NEW_TOKENS, Sampling(temperature=0), ignore_eos=True)
    assert run_order(python, PROGRAM, bundle, [PROMPT]).ids == [list(ours[0].ids)]
