"""onnxruntime-web alone, oldest to newest: the loop of js/greedy.mjs in WebAssembly, in Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_onnx.clients import WEB
from tests.interop._browser import PageError, page
from tests.interop._javascript import in_browser, runtime_task, site
from tests.interop._known import Known
from tests.interop._models import NAMES
from tests.interop._running import is_too_old, versions


@pytest.fixture(params=versions(WEB))
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def in_chromium(known: Known, version: str, rows: tuple[int, ...] = (0,)) -> Any:
    """Let the loop continue prompts in a page."""
    with site(WEB, version, known) as server, page(server.url) as p:
        made = in_browser(p, "byRuntime", runtime_task(WEB, version, known, rows))
        assert not p.failed
        assert not p.errors
        return made


@pytest.mark.parametrize("target", ["cpu", "web"])
@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_the_same(bundles: Any, version: str, name: str, precision: str, target: str) -> None:
    known = bundles(name, precision, target)
    if is_too_old(WEB, version, known):
        with pytest.raises(PageError):
            in_chromium(known, version)
        return
    known.check(in_chromium(known, version)["ids"])


def test_batch_of_unequal_prompts(bundles: Any, version: str) -> None:
    known = bundles("gpt2")
    known.check(in_chromium(known, version, (0, 1))["ids"])


@pytest.mark.parametrize(("isolated", "threads"), [(True, 2), (False, 1)])
def test_threads_need_cross_origin_isolation(
    bundles: Any, version: str, isolated: bool, threads: int
) -> None:
    known = bundles("sinusoidal")
    task = runtime_task(WEB, version, known) | {"threads": 2}
    with site(WEB, version, known, isolated=isolated) as server, page(server.url) as p:
        made = in_browser(p, "byRuntime", task)
        assert made["threads"] == threads
        known.check(made["ids"])
