"""What users see where a browser or a download is not as it should be; docs/clients.md says what it means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import TRANSFORMERS_JS, WEB
from tests.interop._browser import PageError, page
from tests.interop._javascript import in_browser, pipeline_task, runtime_task, site

NO_SIMD = ("--js-flags=--no-enable-sse4-1",)
"""Where the processor has no SSE4.1, V8 has no SIMD in WebAssembly."""
DATA = "onnx/model.onnx_data"
TASKS = {"byRuntime": (WEB, runtime_task), "byPipeline": (TRANSFORMERS_JS, pipeline_task)}
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"


@pytest.fixture(params=TASKS)
def function(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def trouble(bundles: Any, function: str, flags: tuple[str, ...] = (), **options: Any) -> str:
    """Return what a client throws."""
    known = bundles("sinusoidal", target="web")
    client, task_of = TASKS[function]
    with site(client, client.newest, known, **options) as server, page(server.url, flags=flags) as p:
        with pytest.raises(PageError) as caught:
            in_browser(p, function, task_of(client, client.newest, known))
        return str(caught.value)


def test_browser_without_simd(bundles: Any, function: str) -> None:
    said = "WebAssembly SIMD is not supported in the current environment"
    assert said in trouble(bundles, function, NO_SIMD)
    assert said in PAGE.read_text(encoding="utf-8")


def test_connection_that_breaks_off_within_the_weights(bundles: Any, function: str) -> None:
    said = "TypeError: Failed to fetch"
    assert said in trouble(bundles, function, cut={f"/bundles/bundle/{DATA}": 100_000})
    assert said in PAGE.read_text(encoding="utf-8")


def test_weights_of_which_half_are_there(bundles: Any, function: str) -> None:
    said = "Out of bounds"
    assert said in trouble(bundles, function, half={f"/bundles/bundle/{DATA}": 100_000})
    assert said in PAGE.read_text(encoding="utf-8")
