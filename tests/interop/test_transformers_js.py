"""transformers.js, oldest to newest: its text-generation pipeline in Node and in Chromium."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpt_onnx.clients import TRANSFORMERS_JS, facts_of, is_older
from gpt_onnx.clients._conditions import SMALL_WASM_SINCE, runs_in_small_wasm
from tests.interop._cases import every_bundle
from tests.interop._javascript import each_node, in_browser, in_node, opened, pipeline_task, ran_of
from tests.interop._known import Known
from tests.interop._running import Ran, each_version
from tests.interop._told import check_as_told, check_refused
from tests.interop._worker import Worker

TOO_OLD = "GatherBlockQuantized|DequantizeLinear|Only 4b quantization is supported"
NUMBER = r"^\d+$"
"""What a build without words says: the number of an exception."""
NO_KERNEL = r"Could not find an implementation for (Cast|GatherBlockQuantized)"
UNFOLDED = {"session_options": {"extra": {"session": {"disable_quant_qdq": "1"}}}}
version = each_version(TRANSFORMERS_JS)
worker = each_node(TRANSFORMERS_JS, "pipeline_node.mjs")


def continued_in_chromium(known: Known, version: str, batches: Sequence[Sequence[int]]) -> list[Ran]:
    """Let the pipeline continue batches of prompts in a page."""
    with opened(TRANSFORMERS_JS, version, known) as p:
        tasks = [pipeline_task(TRANSFORMERS_JS, version, known, rows) for rows in batches]
        return [ran_of(in_browser(p, "byPipeline", task)) for task in tasks]


@every_bundle
def test_greedy_text_in_node_is_as_the_table_says(
    bundles: Any, worker: Worker, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    check_as_told(
        TRANSFORMERS_JS,
        version,
        known,
        lambda batches: [in_node(worker, TRANSFORMERS_JS, version, known, rows) for rows in batches],
        TOO_OLD,
        batch=target == "portable",
    )


@every_bundle
def test_greedy_text_in_chromium_is_as_the_table_says(
    bundles: Any, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)

    def go(batches: Sequence[Sequence[int]]) -> list[Ran]:
        return continued_in_chromium(known, version, batches)

    has_small_wasm = not is_older(version, SMALL_WASM_SINCE)
    if has_small_wasm and not runs_in_small_wasm(facts_of(known.gpt.engine.bundle)):
        check_refused(known, go, NO_KERNEL)
        return
    check_as_told(TRANSFORMERS_JS, version, known, go, NUMBER, batch=target == "portable")


def test_integers_that_become_floats_at_load_write_the_same_in_chromium(bundles: Any, version: str) -> None:
    """With the option by which docs/clients.md makes them as fast as floats."""
    known = bundles("gpt2", "int4", "portable")
    task = pipeline_task(TRANSFORMERS_JS, version, known) | {"options": UNFOLDED}
    with opened(TRANSFORMERS_JS, version, known) as p:
        ran_of(in_browser(p, "byPipeline", task)).check(known)


def test_a_head_of_four_bits_is_refused_in_chromium(bundles: Any) -> None:
    """As the table's limit says; where this fails, the limit is to go."""
    known = bundles("gpt2", "int4", "web", head_precision="int4")
    newest = TRANSFORMERS_JS.newest
    check_refused(known, lambda batches: continued_in_chromium(known, newest, batches), NO_KERNEL)


def test_padding_on_the_left_spoils_the_shorter_prompt_of_target_cpu(
    bundles: Any, worker: Worker, version: str
) -> None:
    """As the table's limit says; where this fails, the limit is to go."""
    known = bundles("gpt2")
    shorter, longest = in_node(worker, TRANSFORMERS_JS, version, known, (0, 1)).ids
    assert longest == known.ids[1]
    assert shorter != known.ids[0]
