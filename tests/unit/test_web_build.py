"""A site holds the page, its libraries and the whole bundle, lists every file, and asks no other host."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.bundle import open_bundle
from gpt_onnx.errors import BundleError
from gpt_onnx.web import build_site
from gpt_onnx.web._policy import HEADERS, PAGE_POLICY

BundleMaker = Callable[..., Path]


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    folder = tmp_path / "libraries"
    folder.mkdir()
    (folder / "run.wasm.gz").write_bytes(b"packed")
    (folder / "run.mjs").write_text("export default 1;")
    return folder


@pytest.fixture
def bundle(make_bundle: BundleMaker) -> Path:
    """One without a tokenizer, which the toy's is none."""
    path = make_bundle()
    manifest = open_bundle(path).manifest
    (path / "tokenizer.json").unlink()
    from gpt_onnx.bundle import seal

    seal(path, manifest)
    return path


def _listing(site: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((site / "site.json").read_text(encoding="utf-8"))
    return values


def _built(bundle: Path, libraries: Path, tmp_path: Path) -> Path:
    return build_site(bundle, tmp_path / "site", lambda: libraries).path


def test_every_file_is_listed_with_its_hash(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    site = _built(bundle, libraries, tmp_path)
    listed = _listing(site)["files"]
    found = {path.relative_to(site).as_posix(): path for path in site.rglob("*") if path.is_file()}
    assert set(found) == set(listed) | {"site.json", "sw.js", "_headers"}
    for name, entry in listed.items():
        content = found[name].read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_service_worker_knows_the_same_hashes(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    site = _built(bundle, libraries, tmp_path)
    [line] = re.findall(r"^const FILES = (.*);$", (site / "sw.js").read_text(), re.MULTILINE)
    known = json.loads(line)
    assert known.pop("site.json") == hashlib.sha256((site / "site.json").read_bytes()).hexdigest()
    assert known == {name: entry["sha256"] for name, entry in _listing(site)["files"].items()}


def test_bundle_in_the_site_is_a_bundle(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    site = _built(bundle, libraries, tmp_path)
    assert open_bundle(site / "bundle").manifest == open_bundle(bundle).manifest


def test_same_ingredients_give_the_same_bytes(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    sites = [build_site(bundle, tmp_path / name, lambda: libraries).path for name in ("one", "two")]
    for name in ("site.json", "sw.js", "index.html", "_headers"):
        assert (sites[0] / name).read_bytes() == (sites[1] / name).read_bytes()


def test_report_counts_what_a_visit_loads(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    report = build_site(bundle, tmp_path / "site", lambda: libraries)
    listed = _listing(report.path)["files"]
    unused = sum(listed[f"bundle/{name}"]["size"] for name in ("config.json",))
    assert report.first_visit_bytes == sum(entry["size"] for entry in listed.values()) - unused
    assert report.parts["runtime"] == sum(
        e["size"] for name, e in listed.items() if name.startswith("vendor/")
    )
    assert report.bytes == sum(path.stat().st_size for path in report.path.rglob("*") if path.is_file())


class _Page(HTMLParser):
    """Collects what a policy without inline scripts forbids, and every address."""

    def __init__(self) -> None:
        super().__init__()
        self.inline: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.inline += [name for name in values if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and not values.get("src")) else []
        self.addresses += [str(values[name]) for name in ("src", "href", "action") if name in values]
        self.ids += [str(values["id"])] if "id" in values else []
        self.labels += [str(values["for"])] if tag == "label" else []
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(values["content"])


def _parsed(site: Path) -> _Page:
    page = _Page()
    page.feed((site / "index.html").read_text(encoding="utf-8"))
    return page


def test_page_has_a_policy_and_nothing_inline(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    page = _parsed(_built(bundle, libraries, tmp_path))
    assert page.policy == PAGE_POLICY
    assert "unsafe-inline" not in page.policy
    assert "'unsafe-eval'" not in page.policy
    assert page.inline == []


def test_nothing_is_asked_of_another_host(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    site = _built(bundle, libraries, tmp_path)
    assert not [address for address in _parsed(site).addresses if ":" in address or address.startswith("/")]
    for path in [*site.glob("*.js"), *site.glob("engine/*.js"), *site.glob("page/*.js"), site / "style.css"]:
        assert not re.findall(r"https?://", path.read_text(encoding="utf-8")), path


def test_every_field_has_a_label_and_ids_are_unique(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    site = _built(bundle, libraries, tmp_path)
    page = _parsed(site)
    fields = re.findall(
        r"<(?:input|textarea|progress)\b[^>]*\bid=\"([^\"]+)\"", (site / "index.html").read_text()
    )
    assert len(fields) == 11
    assert set(fields) <= set(page.labels)
    assert len(page.ids) == len(set(page.ids))


def test_name_of_a_model_is_text(make_bundle: BundleMaker, libraries: Path, tmp_path: Path) -> None:
    path = make_bundle(name="toy")
    manifest = open_bundle(path).manifest.replace(name='a <b> "c" & d')
    (path / "tokenizer.json").unlink()
    from gpt_onnx.bundle import seal

    seal(path, manifest)
    text = (_built(path, libraries, tmp_path) / "index.html").read_text(encoding="utf-8")
    assert "<title>a &lt;b&gt; &quot;c&quot; &amp; d</title>" in text
    assert "<b>" not in text


def test_headers_isolate_the_page(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    text = (_built(bundle, libraries, tmp_path) / "_headers").read_text()
    assert "Cross-Origin-Opener-Policy: same-origin" in text
    assert "Cross-Origin-Embedder-Policy: require-corp" in text
    assert HEADERS["Content-Security-Policy"].startswith(PAGE_POLICY)


def test_damaged_bundle_is_refused(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    data = bundle / "onnx/model.onnx_data"
    data.write_bytes(data.read_bytes()[:-1] + b"\1")
    with pytest.raises(BundleError, match="is damaged"):
        build_site(bundle, tmp_path / "site", lambda: libraries)
    assert not (tmp_path / "site").exists()


def test_tokenizer_that_the_runtime_refuses_is_refused(
    make_bundle: BundleMaker, libraries: Path, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        build_site(make_bundle(), tmp_path / "site", lambda: libraries)


def test_site_is_replaced_when_told_alone(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    site = _built(bundle, libraries, tmp_path)
    with pytest.raises(BundleError, match="already there"):
        build_site(bundle, site, lambda: libraries)
    (site / "page/app.js").unlink()
    build_site(bundle, site, lambda: libraries, overwrite=True)
    assert (site / "page/app.js").exists()


def test_other_folders_are_never_replaced(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(BundleError, match="is a folder and no site"):
        build_site(bundle, tmp_path / "mine", lambda: libraries, overwrite=True)
    site = _built(bundle, libraries, tmp_path)
    (site / "page/letter.txt").write_text("dear")
    with pytest.raises(BundleError, match=r"holds page/letter\.txt"):
        build_site(bundle, site, lambda: libraries, overwrite=True)


def test_site_of_the_same_is_left_where_that_will_do(bundle: Path, libraries: Path, tmp_path: Path) -> None:
    first = build_site(bundle, tmp_path / "site", lambda: libraries, reuse=True)
    again = build_site(bundle, tmp_path / "site", lambda: libraries, reuse=True)
    assert (first.built, again.built) == (True, False)
    assert again.parts == first.parts
    (first.path / "style.css").write_text("")
    with pytest.raises(BundleError, match="already there"):
        build_site(bundle, tmp_path / "site", lambda: libraries, reuse=True)


def test_libraries_are_not_fetched_for_a_site_that_cannot_be(bundle: Path, tmp_path: Path) -> None:
    def libraries() -> Path:
        raise AssertionError("they were asked for")

    (tmp_path / "mine").mkdir()
    with pytest.raises(BundleError, match="is already there"):
        build_site(bundle, tmp_path / "mine", libraries)
