"""OpenVINO on the CPU. It computes GroupQueryAttention for one prompt, and takes activations as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gpt_onnx.clients import OPENVINO
from tests.interop._cases import SLOTS, every_bundle, every_frozen_bundle, exact
from tests.interop._running import each_version, each_worker, run, run_each
from tests.interop._told import OTHER_TEXT, check_as_told
from tests.interop._worker import ClientFailed, Worker

CRASHED = "it said nothing"
UNKNOWN = "does not support the following ONNX operations: com.microsoft"
NO_CACHE = r"past_key \(input 3\) and past_value \(input 4\) must be provided"
TABLE = "accepting only a constant as a B input"
ERROR = f"SkipLayerNormalization|{UNKNOWN}|{TABLE}|{NO_CACHE}|{CRASHED}|{OTHER_TEXT}"
"""Versions before 2026 know other operators of com.microsoft, or end without a word."""
version = each_version(OPENVINO)
worker = each_worker(OPENVINO, "openvino_loop.py")
frozen_worker = each_worker(OPENVINO, "openvino_frozen.py", "frozen_worker")


@every_bundle
def test_greedy_text_is_as_the_table_says(
    bundles: Any, worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target, **exact(precision))
    go = partial(run_each, worker, known)
    check_as_told(OPENVINO, version, known, go, ERROR, batch=target == "portable")


@every_frozen_bundle
def test_frozen_lengths_write_the_same(
    bundles: Any, frozen_worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target, seq_len=SLOTS, **exact(precision))
    go = partial(run_each, frozen_worker, known)
    check_as_told(OPENVINO, version, known, go, ERROR, batch=False)


@pytest.mark.parametrize("name", ["sinusoidal", "gpt2"])
def test_tied_integers_run_with_a_head_in_float32(
    bundles: Any, worker: Worker, version: str, name: str
) -> None:
    known = bundles(name, "int4", head_precision="fp32", **exact("int4"))
    check_as_told(OPENVINO, version, known, partial(run_each, worker, known), ERROR, batch=False)


def test_a_batch_in_groupqueryattention_is_refused(bundles: Any, worker: Worker) -> None:
    """What the table tells: without this limit a later version would need a new entry."""
    with pytest.raises(ClientFailed):
        run(worker, bundles("sinusoidal"), rows=(0, 1))
