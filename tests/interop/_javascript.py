"""Clients of JavaScript: where a version of one lies, and what it makes of a bundle, in Node or in a browser.

in_node(NODE, "1.30.0", "greedy_node.mjs", known, rows=(0, 1))["ids"]
with site(WEB, "1.30.0", known) as server, page(server.url) as p:
    in_browser(p, "byRuntime", task)["ids"]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpt_onnx.clients import Client
from tests.interop._browser import Page
from tests.interop._known import NEW_TOKENS, PROMPTS, Known
from tests.interop._node import JS, node_modules_of, run_node
from tests.interop._served import Served, serving

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


def in_node(client: Client, version: str, script: str, known: Known, rows: Sequence[int] = (0,)) -> Any:
    """Let a script of js/ continue some of the prompts, as one batch.

    Raises:
        ClientFailed: With what Node.js says.
    """
    modules, package = package_of(client, version)
    return run_node(script, modules, {"client": package, "folder": str(known.path), **_rows(known, rows)})


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
        "bundles": "/bundles/",
        "name": known.path.name,
        **_rows(known, rows),
    }


def in_browser(p: Page, function: str, task: Mapping[str, Any]) -> Any:
    """Return what a function of web.mjs makes of a task.

    Raises:
        PageError: With what it throws.
    """
    return p.evaluate(f"(await import('/web.mjs')).{function}({json.dumps(task)})", seconds=SECONDS)
