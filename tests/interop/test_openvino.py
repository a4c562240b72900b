"""OpenVINO on the CPU. It computes GroupQueryAttention for one prompt, and takes activations as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import OPENVINO
from tests.interop._known import Known
from tests.interop._models import NAMES
from tests.interop._running import (
    ClientFailed,
    check_alone,
    check_alone_and_together,
    environment_of,
    is_too_old,
    run,
    runs,
    versions,
)

PROGRAM = "openvino_loop.py"
PRECISIONS = {"fp32": {}, "int4": {"accuracy_level": 0}}


@pytest.fixture(params=versions(OPENVINO))
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def python(version: str) -> Path:
    return environment_of(OPENVINO, version)


def check_as_told(python: Path, version: str, known: Known) -> None:
    """Hold one prompt's text to ours, or see a refusal where the table says that there is one."""
    if runs(OPENVINO, known) and not is_too_old(OPENVINO, version, known):
        check_alone(python, PROGRAM, known)
        return
    with pytest.raises(ClientFailed):
        run(python, PROGRAM, known)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_of_one_prompt_is_the_same(
    bundles: Any, python: Path, version: str, name: str, precision: str
) -> None:
    check_as_told(python, version, bundles(name, precision, **PRECISIONS[precision]))


@pytest.mark.parametrize("name", ["sinusoidal", "gpt2"])
def test_tied_integers_run_in_target_web(bundles: Any, python: Path, version: str, name: str) -> None:
    check_as_told(python, version, bundles(name, "int4", "web", accuracy_level=0))


@pytest.mark.parametrize("name", ["sinusoidal", "gpt2"])
def test_tied_integers_run_with_a_head_in_float32(
    bundles: Any, python: Path, version: str, name: str
) -> None:
    check_as_told(python, version, bundles(name, "int4", head_precision="fp32", accuracy_level=0))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_of_a_batch_is_the_same_in_portable_graphs(
    bundles: Any, python: Path, name: str, precision: str
) -> None:
    check_alone_and_together(python, PROGRAM, bundles(name, precision, "portable", **PRECISIONS[precision]))


def test_a_batch_in_groupqueryattention_is_refused(bundles: Any, python: Path) -> None:
    """What the table tells: without this limit a later version would need a new entry."""
    with pytest.raises(ClientFailed):
        run(python, PROGRAM, bundles("sinusoidal"), rows=(0, 1))


def test_half_precision_runs(bundles: Any, python: Path) -> None:
    check_alone_and_together(python, PROGRAM, bundles("gpt2", "fp16", "portable"))
