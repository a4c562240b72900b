"""The JavaScript of docs/clients.md, each program run in Node or in a page, beside a bundle called my-gpt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import TRANSFORMERS_JS, WEB
from tests.interop._browser import Page, page
from tests.interop._javascript import package_of, wasm_of
from tests.interop._known import PROMPTS, Known
from tests.interop._node import node_modules_of, run_file
from tests.interop._served import serving
from tests.interop._snippets import snippets

IN_NODE = ("onnxruntime_node", "transformers_js_node")
IN_PAGES = ("onnxruntime_web", "transformers_js_web")
LOOP = "// The loop."
MODULES = {
    "@huggingface/tokenizers": "@huggingface/tokenizers/dist/tokenizers.mjs",
    "@huggingface/transformers": "@huggingface/transformers/dist/transformers.js",
    "onnxruntime-web/wasm": "onnxruntime-web/dist/ort.wasm.min.mjs",
}
"""What a bundler would find for each name."""
PAGE = """<!doctype html><link rel="icon" href="data:,">
<script type="importmap">{imports}</script>
<script type="module">{program}</script>"""
SECONDS = 120


def written(known: Known) -> str:
    """Return what every program is to write."""
    return PROMPTS[0] + known.texts[0]


@pytest.mark.parametrize("name", IN_NODE)
def test_program_in_node_writes_the_same_text(bundles: Any, tmp_path: Path, name: str) -> None:
    known = bundles("sinusoidal")
    (tmp_path / "my-gpt").symlink_to(known.path)
    (tmp_path / "node_modules").symlink_to(node_modules_of("newest"))
    (tmp_path / "program.mjs").write_text(snippets()[name], encoding="utf-8")
    assert run_file(tmp_path / "program.mjs", folder=tmp_path) == written(known) + "\n"


@contextmanager
def opened(program: str, folder: Path, known: Known) -> Iterator[Page]:
    """Open a page with a program, the modules that it names, and a bundle."""
    modules, transformers = package_of(TRANSFORMERS_JS, TRANSFORMERS_JS.newest)
    imports = json.dumps({"imports": {name: f"/modules/{path}" for name, path in MODULES.items()}})
    (folder / "index.html").write_text(PAGE.format(imports=imports, program=program), encoding="utf-8")
    folders = {
        "/": folder,
        "/modules/": modules,
        "/onnxruntime/": modules / wasm_of(modules, transformers),
        "/models/my-gpt/": known.path,
    }
    with serving(folders) as server, page(server.url) as p:
        yield p


def check_page(program: str, folder: Path, known: Known) -> None:
    """Hold the first line that a page's program writes to this runtime's text."""
    with opened(program, folder, known) as p:
        p.wait_until(lambda: any(line.startswith("log: ") for line in p.console), SECONDS)
        assert [line for line in p.console if line.startswith("log: ")] == [f"log: {written(known)}"]


def test_program_of_onnxruntime_web_writes_the_same_text(bundles: Any, tmp_path: Path) -> None:
    program = snippets()["onnxruntime_web"] + snippets()["onnxruntime_node"].split(LOOP)[1]
    check_page(program, tmp_path, bundles("sinusoidal", target="web"))


@pytest.mark.parametrize("precision", ["fp32", "int4"])
def test_program_of_transformers_js_writes_the_same_text(
    bundles: Any, tmp_path: Path, precision: str
) -> None:
    check_page(snippets()["transformers_js_web"], tmp_path, bundles("sinusoidal", precision, "web"))


def test_versions_that_the_page_names_are_those_that_are_run() -> None:
    wanted = json.loads((Path(__file__).parent / "js/newest/package.json").read_text(encoding="utf-8"))
    for client in (WEB, TRANSFORMERS_JS):
        assert wanted["dependencies"][client.package.split()[-1]] == client.newest
