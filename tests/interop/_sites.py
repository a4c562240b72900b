"""Sites of bundles, served, and open in a browser.

with opened(path_of_a_bundle, tmp_path) as p:       # a page that is ready
    set_fields(p, temperature=0, new_tokens=64)
    write(p, "My fellow citizens,")
    text_of(p)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gpt_onnx.cli.web import cache_folder
from gpt_onnx.errors import ProviderError
from gpt_onnx.web import build_site, vendor
from gpt_onnx.web._serve import serving
from tests.interop._browser import Page, page
from tests.interop._environments import HERE, STAMP, install, locked
from tests.interop._environments import cache_folder as interop_folder

PINS = ("package.json", "package-lock.json")
READY_S = 120  # on a busy machine
IDLE = "document.documentElement.dataset.state === 'idle'"
BROKEN = "!document.getElementById('problem').hidden"
VIOLATIONS = "Content Security Policy"

WATCHED = """
await (async () => {
  const worker = new Worker('worker.js', { type: 'module' });
  const steps = [];
  await new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.failed) reject(new Error(data.failed.sentence));
      if (data.ready) worker.postMessage({ generate: TASK });
      if (data.step) steps.push(data.step);
      if (data.step?.reason) resolve();
    };
    worker.postMessage({ load: { threads: THREADS } });
  });
  worker.terminate();
  return steps;
})()
"""
"""A worker of the page's own, asked without the page's form: it says what became of each token."""


def libraries() -> Path:
    """Return the page's libraries; skips the test where npm cannot fetch them."""
    try:
        return vendor(cache_folder())
    except ProviderError as exc:
        pytest.skip(str(exc))


def checkers() -> Path:
    """Return the node_modules of site/package.json; skips the test where npm cannot fetch them."""
    npm = shutil.which("npm") or pytest.skip("npm is not installed here")
    folder, pins = interop_folder() / "site", HERE / "site"
    with locked(folder):
        kept = [(folder / name).read_bytes() if (folder / name).exists() else b"" for name in (*PINS, STAMP)]
        wanted = [(pins / name).read_bytes() for name in PINS]
        if kept != [*wanted, b"done"]:
            for name in PINS:
                shutil.copy(pins / name, folder)
            install(
                [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "axe-core, typescript", folder
            )
            (folder / STAMP).write_bytes(b"done")
    return folder / "node_modules"


def site_of(bundle: Path, folder: Path) -> Path:
    """Build the site of a bundle."""
    return build_site(bundle, folder / "site", libraries).path


@contextmanager
def opened(
    bundle: Path, folder: Path, query: str = "", until: str = IDLE, flags: Sequence[str] = ()
) -> Iterator[Page]:
    """Build a bundle's site, serve it, and open it; the page is ready, or as ``until`` says."""
    site = site_of(bundle, folder)
    with serving(site) as url, page(url + query, flags=flags) as p:
        p.wait_for(until, READY_S)
        yield p
        assert not [line for line in p.console if VIOLATIONS in line]


def set_fields(p: Page, **values: Any) -> None:
    """Fill in settings: ``new_tokens=64`` is the field ``new-tokens``."""
    for name, value in values.items():
        field = f"document.getElementById({json.dumps(name.replace('_', '-'))})"
        change = (
            f"checked = {json.dumps(value)}"
            if isinstance(value, bool)
            else f"value = {json.dumps(str(value))}"
        )
        p.evaluate(f"{field}.{change}")


def write(p: Page, prompt: str, until: str = IDLE) -> None:
    """Have the page continue a prompt, as a user of the keyboard does."""
    p.evaluate("document.getElementById('prompt').focus()")
    p.evaluate("document.getElementById('prompt').select()")
    p.type(prompt)
    p.click("#go")
    p.wait_for(until, READY_S)


def text_of(p: Page) -> str:
    """Return the continuation that the page shows."""
    return str(p.evaluate("document.getElementById('text').textContent"))


def said(p: Page, name: str) -> str:
    """Return what an element says; empty if it is hidden."""
    found = f"document.getElementById({json.dumps(name)})"
    return str(p.evaluate(f"{found}.hidden ? '' : {found}.textContent"))


def generated(
    p: Page,
    prompt: str,
    *,
    new_tokens: int,
    seed: int = 0,
    stop: Sequence[str] = (),
    threads: int = 1,
    sampling: Mapping[str, float] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return the steps of a generation by a worker of its own, past ends of texts."""
    chosen = {"temperature": 0, "topK": 0, "topP": 1, "minP": 0, "repetitionPenalty": 1, **sampling}
    task = {
        "prompt": prompt,
        "newTokens": new_tokens,
        "stop": list(stop),
        "sampling": chosen,
        "ignoreEos": True,
    }
    asked = f"{{...{json.dumps(task)}, seed: {seed}n}}"
    steps: list[dict[str, Any]] = p.evaluate(
        WATCHED.replace("TASK", asked).replace("THREADS", str(threads)), seconds=300
    )
    return steps


def ids_of(steps: Sequence[dict[str, Any]]) -> list[int]:
    """Return the tokens of a generation."""
    return [step["id"] for step in steps if step["id"] is not None]
