"""The page of ``gpt-onnx verify --report``."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from gpt_onnx.bundle import FileEntry, Manifest
from gpt_onnx.cli._html_report import html_report

FOUND: dict[str, Any] = {
    "provider": "cpu",
    "onnxruntime": "1.32.0",
    "cases": [
        {
            "name": "case.0",
            "tokens": 7,
            "logits": 4096,
            "max_ratio": 0.25,
            "rms_ratio": 0.125,
            "passed": True,
        },
        {
            "name": "case.1",
            "tokens": 9,
            "logits": 12288,
            "max_ratio": None,
            "rms_ratio": None,
            "passed": False,
        },
    ],
    "greedy": {"tokens": 32, "compared": 30, "passed": True},
    "against": None,
}


class Reader(HTMLParser):
    """Gathers the cells of every row, and what a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.fetched += [tag] if tag in {"script", "link", "img", "iframe"} else []
        self.fetched += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"td", "th"}:
            self.rows[-1].append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def test_every_case_is_a_row_and_a_failure_is_said(make_manifest: Any) -> None:
    rows = read(html_report(FOUND, make_manifest(), "one sentence")).rows
    assert ["case.0", "7", "4,096", "0.25", "0.125", "ok"] in rows
    assert ["case.1", "9", "12,288", "-", "-", "FAILED"] in rows
    assert ["32", "30", "ok"] in rows


def test_every_file_is_a_row_with_its_hash(make_manifest: Any) -> None:
    manifest: Manifest = make_manifest()
    names = [*manifest.graph.paths, "config.json"]
    files = {name: FileEntry(size=1234, sha256="ab" * 32) for name in names}
    rows = read(html_report(FOUND, manifest.replace(files=files), "v")).rows
    assert [row for row in rows if row[:1] == ["config.json"]] == [["config.json", "1,234", "ab" * 32]]


def test_text_of_the_bundle_is_escaped(make_manifest: Any) -> None:
    page = html_report(FOUND, make_manifest(name="<script>alert(1)</script>"), "<b>", ["a & b"])
    assert read(page).fetched == []
    assert "<script>" not in page
    assert "a &amp; b" in page


def test_nothing_is_fetched(make_manifest: Any) -> None:
    assert read(html_report(FOUND, make_manifest(), "v")).fetched == []
    assert "http" not in html_report(FOUND, make_manifest(), "v")
