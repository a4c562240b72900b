"""transformers.js, oldest to newest: its text-generation pipeline in Node and in Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_onnx.clients import TRANSFORMERS_JS
from tests.interop._browser import PageError, page
from tests.interop._javascript import in_browser, in_node, pipeline_task, site
from tests.interop._known import Known
from tests.interop._models import NAMES
from tests.interop._running import ClientFailed, is_too_old, versions

SCRIPT = "pipeline_node.mjs"
TOO_OLD = "GatherBlockQuantized|DequantizeLinear"


@pytest.fixture(params=versions(TRANSFORMERS_JS))
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def check(known: Known, made: Any) -> None:
    """Hold ids and texts to this runtime's."""
    known.check(made["ids"])
    known.check_texts(made["ids"], made["texts"])


def in_chromium(known: Known, version: str, rows: tuple[int, ...] = (0,)) -> Any:
    """Let the pipeline continue prompts in a page."""
    with site(TRANSFORMERS_JS, version, known) as server, page(server.url) as p:
        made = in_browser(p, "byPipeline", pipeline_task(TRANSFORMERS_JS, version, known, rows))
        assert not p.failed
        assert not p.errors
        return made


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_the_same_in_node(bundles: Any, version: str, name: str, precision: str) -> None:
    known = bundles(name, precision)
    if is_too_old(TRANSFORMERS_JS, version, known):
        with pytest.raises(ClientFailed, match=TOO_OLD):
            in_node(TRANSFORMERS_JS, version, SCRIPT, known)
        return
    check(known, in_node(TRANSFORMERS_JS, version, SCRIPT, known))


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_batch_of_unequal_prompts_of_target_portable(
    bundles: Any, version: str, name: str, precision: str
) -> None:
    known = bundles(name, precision, "portable")
    if is_too_old(TRANSFORMERS_JS, version, known):
        pytest.skip("this version does not run such a bundle")
    check(known, in_node(TRANSFORMERS_JS, version, SCRIPT, known, (0, 1)))


def test_padding_on_the_left_spoils_the_shorter_prompt_of_target_cpu(bundles: Any, version: str) -> None:
    """As the table's limit says; where this fails, the limit is to go."""
    known = bundles("gpt2")
    shorter, longest = in_node(TRANSFORMERS_JS, version, SCRIPT, known, (0, 1))["ids"]
    assert longest == known.ids[1]
    assert shorter != known.ids[0]


@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_of_target_web_is_the_same_in_chromium(
    bundles: Any, version: str, name: str, precision: str
) -> None:
    known = bundles(name, precision, "web")
    if is_too_old(TRANSFORMERS_JS, version, known):
        pytest.skip("this version does not run such a bundle")
    check(known, in_chromium(known, version))


def test_learned_positions_need_no_target_web_in_chromium(bundles: Any, version: str) -> None:
    known = bundles("gpt2")
    check(known, in_chromium(known, version))


@pytest.mark.parametrize(("name", "precision"), [("sinusoidal", "fp32"), ("llama", "fp32"), ("gpt2", "int4")])
def test_what_is_not_of_target_web_says_what_it_lacks_in_chromium(
    bundles: Any, name: str, precision: str
) -> None:
    """As the table's limit says; where this fails, the limit is to go."""
    with pytest.raises(PageError, match=r"Could not find an implementation for (Cast|GatherBlockQuantized)"):
        in_chromium(bundles(name, precision), TRANSFORMERS_JS.newest)


def test_batch_in_chromium(bundles: Any, version: str) -> None:
    known = bundles("gpt2", target="portable")
    check(known, in_chromium(known, version, (0, 1)))
