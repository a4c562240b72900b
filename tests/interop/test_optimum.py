"""optimum's ORTModelForCausalLM and transformers' generate; it pads a batch on the left."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpt_onnx.clients import OPTIMUM
from tests.interop._cases import every_bundle
from tests.interop._running import each_version, each_worker, run_each
from tests.interop._told import check_as_told
from tests.interop._worker import Worker

version = each_version(OPTIMUM)
worker = each_worker(OPTIMUM, "optimum_generate.py")


@every_bundle
def test_greedy_text_is_as_the_table_says(
    bundles: Any, worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    go = partial(run_each, worker, known)
    check_as_told(OPTIMUM, version, known, go, batch=target == "portable")
