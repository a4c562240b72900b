"""ONNX's reference evaluator: standard operators, computed by numpy as the standard words them."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpt_onnx.clients import REFERENCE
from tests.interop._cases import every_bundle, exact
from tests.interop._running import each_version, each_worker, run_each
from tests.interop._told import check_as_told
from tests.interop._worker import Worker

ERROR = "com.microsoft"
version = each_version(REFERENCE)
worker = each_worker(REFERENCE, "reference_evaluate.py")


@every_bundle
def test_greedy_text_is_as_the_table_says(
    bundles: Any, worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target, **exact(precision))
    go = partial(run_each, worker, known)
    check_as_told(REFERENCE, version, known, go, ERROR, batch=precision == "fp32")
