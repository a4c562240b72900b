"""onnxruntime-genai, oldest to newest: its own tokenizer, its own loop and cache, text to text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from gpt_onnx.clients import GENAI
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.interop._cases import every_bundle
from tests.interop._known import NEW_TOKENS
from tests.interop._models import SHIPPED
from tests.interop._running import each_version, each_worker, run_each, run_order
from tests.interop._told import check_as_told
from tests.interop._worker import Worker

version = each_version(GENAI)
worker = each_worker(GENAI, "genai_generate.py")


@every_bundle
def test_greedy_text_is_as_the_table_says(
    bundles: Any, worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    check_as_told(GENAI, version, known, partial(run_each, worker, known))


PROMPT = [1, 2, 3]


def test_a_bundle_without_a_tokenizer_runs_by_ids(bundles_folder: Path, worker: Worker) -> None:
    bundle = bundles_folder / "no-tokenizer"
    if not bundle.exists():
        export_bundle(SHIPPED, bundle, check="none", tokenizer="none")
    ours = OnnxGPT.load(bundle).generate([PROMPT], NEW_TOKENS, Sampling(temperature=0), ignore_eos=True)
    assert run_order(worker, bundle, [PROMPT]).ids == [list(ours[0].ids)]
