"""ONNX's reference evaluator: standard operators, computed by numpy as the standard words them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import REFERENCE
from tests.interop._models import NAMES
from tests.interop._running import check_alone, check_alone_and_together, environment_of, versions

PROGRAM = "reference_evaluate.py"


@pytest.fixture(params=versions(REFERENCE))
def python(request: pytest.FixtureRequest) -> Path:
    return environment_of(REFERENCE, request.param)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_the_same(bundles: Any, python: Path, name: str) -> None:
    check_alone_and_together(python, PROGRAM, bundles(name, target="portable"))


@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_of_integer_weights_is_the_same(bundles: Any, python: Path, name: str) -> None:
    check_alone(python, PROGRAM, bundles(name, "int4", "portable", accuracy_level=0))
