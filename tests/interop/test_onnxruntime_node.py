"""onnxruntime-node alone, oldest to newest: a loop over the graph in JavaScript (js/greedy.mjs)."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_onnx.clients import NODE
from tests.interop._javascript import in_node
from tests.interop._known import Known
from tests.interop._models import NAMES
from tests.interop._running import ClientFailed, is_too_old, versions

SCRIPT = "greedy_node.mjs"


@pytest.fixture(params=versions(NODE))
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def check(known: Known, version: str, rows: tuple[int, ...]) -> None:
    """Hold a batch of some of the prompts to this runtime's text."""
    known.check(in_node(NODE, version, SCRIPT, known, rows)["ids"])


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("precision", ["fp32", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_the_same(bundles: Any, version: str, name: str, precision: str, target: str) -> None:
    known = bundles(name, precision, target)
    if is_too_old(NODE, version, known):
        with pytest.raises(ClientFailed, match="GatherBlockQuantized"):
            check(known, version, (0,))
        return
    check(known, version, (0,))
    check(known, version, (0, 1))


def test_target_web_runs_too(bundles: Any, version: str) -> None:
    check(bundles("sinusoidal", target="web"), version, (0, 1))
