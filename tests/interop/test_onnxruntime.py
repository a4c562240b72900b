"""onnxruntime alone, oldest to newest: a loop of numpy over the graph, without this project's runtime."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import ONNXRUNTIME
from tests.interop._known import NEW_TOKENS
from tests.interop._models import NAMES
from tests.interop._running import (
    ClientFailed,
    check_alone,
    check_alone_and_together,
    environment_of,
    is_too_old,
    run,
    versions,
)

ROOT = Path(__file__).parents[2]
PROGRAM = "onnxruntime_loop.py"


@pytest.fixture(params=versions(ONNXRUNTIME))
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def python(version: str) -> Path:
    return environment_of(ONNXRUNTIME, version)


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_the_same(
    bundles: Any, python: Path, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    if is_too_old(ONNXRUNTIME, version, known):
        with pytest.raises(ClientFailed):
            run(python, PROGRAM, known)
        return
    check_alone_and_together(python, PROGRAM, known)


def test_a_graph_without_a_cache_runs(bundles: Any, python: Path) -> None:
    check_alone(python, PROGRAM, bundles("sinusoidal", kv_cache=False))


def test_target_web_is_that_of_cpu(bundles: Any, python: Path) -> None:
    check_alone_and_together(python, PROGRAM, bundles("sinusoidal", target="web"))


OWN_RUNTIME = "import sys; from gpt_onnx.runtime import OnnxGPT; OnnxGPT.load(sys.argv[1])"


def test_our_runtime_says_which_onnxruntime_it_needs(bundles: Any, python: Path, version: str) -> None:
    known = bundles("sinusoidal", "int4")
    if not is_too_old(ONNXRUNTIME, version, known):
        pytest.skip(f"onnxruntime {version} is new enough")
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [python, "-c", OWN_RUNTIME, known.path]
    done = subprocess.run(command, env=paths, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("or newer; upgrade it with pip install -U onnxruntime.")
    assert f"onnxruntime is {version} and sotu, of target cpu in int4, needs" in done.stderr


def test_a_wrong_text_would_be_noticed(bundles: Any, python: Path) -> None:
    """The judge refuses the text of another prompt, and a text that goes astray in the middle."""
    known = bundles("sinusoidal")
    with pytest.raises(AssertionError, match="parts from this runtime's text at token 0"):
        known.check([known.ids[1]])
    other = [*known.ids[0][:32], *known.ids[1][: NEW_TOKENS - 32]]
    with pytest.raises(AssertionError, match="parts from this runtime's text"):
        known.check([other])


def test_half_precision_runs(bundles: Any, python: Path) -> None:
    check_alone_and_together(python, PROGRAM, bundles("gpt2", "fp16", "portable"))
