"""The browser of these tests tells what a page does, and does to it what users do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop._browser import Page, PageError, page
from tests.interop._served import Served, serving

HTML = """<!doctype html><title>waiting</title><link rel="icon" href="data:,">
<textarea id="box"></textarea><button id="go" onclick="document.title = box.value">go</button>
<script type="module" src="page.mjs"></script>"""
SCRIPT = """
console.warn("a word", 7);
window.worker = new Worker(new URL("worker.mjs", import.meta.url), {type: "module"});
window.worker.onmessage = (said) => { window.heard = said.data; };
window.shared = typeof SharedArrayBuffer !== "undefined";
setTimeout(() => { throw new Error("nobody catches this"); });
"""
WORKER = """
console.log("from the worker");
const fetched = () => fetch("data.bin").then((got) => got.arrayBuffer()).then((all) => all.byteLength);
self.onmessage = () => fetched().then(postMessage, (error) => postMessage(String(error)));
postMessage("ready");
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    files = {"index.html": HTML, "page.mjs": SCRIPT, "worker.mjs": WORKER, "data.bin": "x" * 1000}
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    with serving({"/": tmp_path}, cut={"/cut/data.bin": 10}) as server:
        yield server


@pytest.fixture
def opened(site: Served) -> Iterator[Page]:
    with page(site.url + "/") as p:
        p.wait_for("window.heard === 'ready'")
        yield p


def test_page_and_its_workers_are_heard(opened: Page) -> None:
    opened.wait_for("true")
    assert "warning: a word 7" in opened.console
    assert "log: from the worker" in opened.console
    assert any("nobody catches this" in error for error in opened.errors)
    assert opened.failed == []
    assert opened.evaluate("window.shared") is True


def test_value_that_a_promise_brings(opened: Page) -> None:
    assert opened.evaluate("await fetch('data.bin').then((got) => got.status)") == 200
    assert opened.evaluate("Promise.resolve({a: [1]})") == {"a": [1]}
    with pytest.raises(PageError, match="on purpose"):
        opened.evaluate("await Promise.reject(new Error('on purpose'))")


def test_what_never_comes_is_told(opened: Page) -> None:
    with pytest.raises(PageError, match=r"last heard.*a word"):
        opened.wait_for("window.neverSet", seconds=0.2)


def test_hands_of_a_user(opened: Page) -> None:
    opened.click("#box")
    opened.type("written 😀")
    opened.press("Tab")
    assert opened.evaluate("document.activeElement.id") == "go"
    opened.press("Enter")
    opened.wait_for("document.title === 'written 😀'")


def test_missing_file_is_a_failed_request(opened: Page, site: Served) -> None:
    opened.evaluate("await fetch('none.bin').then((got) => got.status)")
    assert opened.failed == [f"{site.url}/none.bin: 404"]


def test_offline_reaches_workers(opened: Page) -> None:
    opened.offline()
    with pytest.raises(PageError, match="Failed to fetch"):
        opened.evaluate("await fetch('data.bin')")
    opened.evaluate("worker.postMessage(0)")
    opened.wait_for("window.heard === 'TypeError: Failed to fetch'")
    opened.offline(False)
    opened.evaluate("worker.postMessage(0)")
    opened.wait_for("window.heard === 1000")


def test_looks(opened: Page, tmp_path: Path) -> None:
    opened.look(width=300, height=200, dark=True)
    assert opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is True
    written = opened.screenshot(tmp_path / "page.png").read_bytes()
    assert written[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(written[16:20], "big"), int.from_bytes(written[20:24], "big")) == (300, 200)


def test_reload_is_a_new_page(opened: Page) -> None:
    opened.evaluate("window.mark = 1")
    opened.reload()
    assert opened.evaluate("window.mark ?? null") is None


def test_connection_breaks_off_where_told(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(HTML, encoding="utf-8")
    (tmp_path / "page.mjs").write_text("", encoding="utf-8")
    (tmp_path / "data.bin").write_bytes(b"x" * 1000)
    with serving({"/": tmp_path}, isolated=False, cut={"/data.bin": 10}) as site, page(site.url) as p:
        assert p.evaluate("typeof SharedArrayBuffer") == "undefined"
        with pytest.raises(PageError):
            p.evaluate("await fetch('data.bin').then((got) => got.arrayBuffer())")
        assert site.requests == ["/", "/page.mjs", "/data.bin"]
