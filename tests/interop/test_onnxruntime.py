"""onnxruntime alone, oldest to newest: a loop of numpy over the graph, without this project's runtime."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import ONNXRUNTIME
from tests.interop._cases import SLOTS, every_bundle, every_frozen_bundle
from tests.interop._known import NEW_TOKENS
from tests.interop._running import each_environment, each_version, each_worker, is_too_old, run, run_each
from tests.interop._told import check_as_told
from tests.interop._worker import Worker

ROOT = Path(__file__).parents[2]
ERROR = "GatherBlockQuantized|Only 4b quantization is supported"
version = each_version(ONNXRUNTIME)
python = each_environment(ONNXRUNTIME)
worker = each_worker(ONNXRUNTIME, "onnxruntime_loop.py")
frozen_worker = each_worker(ONNXRUNTIME, "onnxruntime_frozen.py", "frozen_worker")


@every_bundle
def test_greedy_text_is_as_the_table_says(
    bundles: Any, worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    check_as_told(ONNXRUNTIME, version, known, partial(run_each, worker, known), ERROR)


def test_a_graph_without_a_cache_runs(bundles: Any, worker: Worker) -> None:
    known = bundles("sinusoidal", kv_cache=False)
    run(worker, known).check(known)


@every_frozen_bundle
def test_frozen_lengths_write_the_same(
    bundles: Any, frozen_worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target, seq_len=SLOTS)
    go = partial(run_each, frozen_worker, known)
    check_as_told(ONNXRUNTIME, version, known, go, ERROR, batch=False)


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
