"""onnxruntime-genai, oldest to newest: its own tokenizer, its own loop and cache, text to text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import GENAI
from tests.interop._models import NAMES
from tests.interop._running import check_alone_and_together, environment_of, versions

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
