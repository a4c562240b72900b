"""Clients of JavaScript: where a version of one lies, and what it makes of a bundle, in Node or in a browser.

worker = each_node(NODE, "greedy_node.mjs")
def test_it(worker, version, ...):
    in_node(worker, NODE, version, known, rows=(0, 1)).check(known)
with opened(WEB, "1.30.0", known) as p:
    in_browser(p, "byRuntime", task)["ids"]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import Client
from tests.interop._browser import Page, page
from tests.interop._known import NEW_TOKENS, PROMPTS, Known
from tests.interop._node import JS, answering, node_modules_of
from tests.interop._running import Ran
from tests.interop._served import Served, serving
from tests.interop._worker import Worker

SECONDS = 300
WASM = "onnxruntime-web/dist"
DISTRIBUTION = "*.wasm"


def package_of(client: Client, version: str) -> tuple[Path, str]:
    """Return the node_modules folder that has a version of a client, and its package's name there."""
    package = client.package.split()[-1]
    if version == client.newest:
        return node_modules_of("newest"), package
    return node_modules_of("older"), f"{package.split('/')[-1]}-{version}"


def _rows(known: Known, rows: Sequence[int]) -> dict[str, Any]:
    """Return some of the prompts as a task says them: ids for a loop, texts for a pipeline."""
    return {
        "count": NEW_TOKENS,
        "prompts": [known.prompt_ids[row] for row in rows],
        "texts": [PROMPTS[row] for row in rows],
    }


def each_node(client: Client, script: str) -> Any:
    """Return a fixture, ``worker``: a script of js/ that answers orders with the ``version`` of a client."""

    @pytest.fixture(name="worker", scope="module")
    def worker(version: str) -> Iterator[Worker]:
        with answering(script, package_of(client, version)[0]) as running:
            yield running

    return worker


def in_node(worker: Worker, client: Client, version: str, known: Known, rows: Sequence[int] = (0,)) -> Ran:
    """Let a script of js/ continue some of the prompts, as one batch.

    Raises:
        ClientFailed: With what Node.js says.
    """
    _, package = package_of(client, version)
    return ran_of(worker.ask({"client": package, "folder": str(known.path), **_rows(known, rows)}))


def ran_of(made: Mapping[str, Any]) -> Ran:
    """Return what a program of js/ made: rows of ids, and texts where it has them."""
    return Ran(made["ids"], made.get("texts"))


def wasm_of(modules: Path, package: str) -> str:
    """Return where the WebAssembly of a package lies: with it, in it, or beside it."""
    places = (f"{package}/dist", f"{package}/node_modules/{WASM}", WASM)
    return next(place for place in places if list((modules / place).glob(DISTRIBUTION)))


@contextmanager
def site(client: Client, version: str, known: Known, **options: Any) -> Iterator[Served]:
    """Serve js/, a version of a client and a bundle; ``options`` are those of ``serving``."""
    modules, _ = package_of(client, version)
    with serving({"/": JS, "/modules/": modules, "/bundles/": known.path.parent}, **options) as server:
        yield server


def runtime_task(client: Client, version: str, known: Known, rows: Sequence[int] = (0,)) -> dict[str, Any]:
    """Return what web.mjs is told to let onnxruntime-web continue prompts."""
    _, package = package_of(client, version)
    library = f"/modules/{package}/dist/ort.wasm.min.mjs"
    return {"library": library, "folder": f"/bundles/{known.path.name}", **_rows(known, rows)}


def pipeline_task(client: Client, version: str, known: Known, rows: Sequence[int] = (0,)) -> dict[str, Any]:
    """Return what web.mjs is told to let transformers.js continue prompts."""
    modules, package = package_of(client, version)
    return {
        "library": f"/modules/{package}/dist/transformers.js",
        "wasm": f"/modules/{wasm_of(modules, package)}/",
        "bundles": "/",
        "name": f"bundles/{known.path.name}",  # all of the path: 3.4.0 puts no env.localModelPath before it
        **_rows(known, rows),
    }


@contextmanager
def opened(client: Client, version: str, known: Known, **options: Any) -> Iterator[Page]:
    """Open a page of such a site; nothing that it asks for may be missing, and nothing go wrong unseen."""
    with site(client, version, known, **options) as server, page(server.url) as p:
        yield p
        assert not p.failed
        assert not p.errors


def in_browser(p: Page, function: str, task: Mapping[str, Any]) -> Any:
    """Return what a function of web.mjs makes of a task.

    Raises:
        PageError: With what it throws.
    """
    return p.evaluate(f"(await import('/web.mjs')).{function}({json.dumps(task)})", seconds=SECONDS)
