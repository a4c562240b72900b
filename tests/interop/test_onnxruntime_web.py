"""onnxruntime-web alone, oldest to newest: the loop of js/greedy.mjs in WebAssembly, in Chromium."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gpt_onnx.clients import WEB
from tests.interop._cases import every_bundle
from tests.interop._javascript import in_browser, opened, ran_of, runtime_task
from tests.interop._known import Known
from tests.interop._running import Ran, each_version
from tests.interop._told import check_as_told

ERROR = r"GatherBlockQuantized|^\d+$"
"""Where its build has no words, the number of an exception."""
UNFOLDED = {"extra": {"session": {"disable_quant_qdq": "1"}}}
version = each_version(WEB)


def in_chromium(known: Known, version: str, batches: Sequence[Sequence[int]]) -> list[Ran]:
    """Let the loop continue batches of prompts in a page."""
    with opened(WEB, version, known) as p:
        tasks = [runtime_task(WEB, version, known, rows) for rows in batches]
        return [ran_of(in_browser(p, "byRuntime", task)) for task in tasks]


@every_bundle
def test_greedy_text_is_as_the_table_says(
    bundles: Any, version: str, name: str, precision: str, target: str
) -> None:
    known = bundles(name, precision, target)
    check_as_told(WEB, version, known, lambda batches: in_chromium(known, version, batches), ERROR)


def test_integers_that_become_floats_at_load_write_the_same(bundles: Any) -> None:
    """With the option by which docs/clients.md makes them as fast as floats."""
    known = bundles("sinusoidal", "int4", "portable")
    task = runtime_task(WEB, WEB.newest, known) | {"options": UNFOLDED}
    with opened(WEB, WEB.newest, known) as p:
        known.check(in_browser(p, "byRuntime", task)["ids"])


@pytest.mark.parametrize(("isolated", "threads"), [(True, 2), (False, 1)])
def test_threads_need_cross_origin_isolation(
    bundles: Any, version: str, isolated: bool, threads: int
) -> None:
    known = bundles("sinusoidal")
    task = runtime_task(WEB, version, known) | {"threads": 2}
    with opened(WEB, version, known, isolated=isolated) as p:
        made = in_browser(p, "byRuntime", task)
        assert made["threads"] == threads
        known.check(made["ids"])
