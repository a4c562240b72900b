"""optimum's ORTModelForCausalLM and transformers' generate; it pads a batch on the left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import OPTIMUM
from tests.interop._models import NAMES
from tests.interop._running import check_alone, check_alone_and_together, environment_of, versions

PROGRAM = "optimum_generate.py"


@pytest.fixture(params=versions(OPTIMUM))
def python(request: pytest.FixtureRequest) -> Path:
    return environment_of(OPTIMUM, request.param)


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_the_same(bundles: Any, python: Path, name: str, precision: str) -> None:
    check_alone_and_together(python, PROGRAM, bundles(name, precision, "portable"))


def test_target_cpu_runs_for_one_prompt(bundles: Any, python: Path) -> None:
    check_alone(python, PROGRAM, bundles("sinusoidal"))


def test_half_precision_runs(bundles: Any, python: Path) -> None:
    check_alone_and_together(python, PROGRAM, bundles("gpt2", "fp16", "portable"))
