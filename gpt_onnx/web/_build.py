"""Put a site together: the page, its libraries, and a bundle that was verified.

    report = build_site("bundle", "site", partial(vendor, cache))
    report.files, report.bytes, report.first_visit_bytes

The same bundle, libraries and version of this package give the same bytes. The folder appears whole or not at
all.
"""

from __future__ import annotations

import hashlib
import html
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from gpt_onnx.bundle import Bundle, Manifest, open_bundle, replacing
from gpt_onnx.errors import BundleError
from gpt_onnx.web._advice import advice_on
from gpt_onnx.web._fit import check_fit
from gpt_onnx.web._listing import (
    HEADERS_FILE,
    UNLISTED,
    Listing,
    check_destination,
    entry_of,
    paths_in,
    read_listing,
    write_listing,
)
from gpt_onnx.web._policy import PAGE_POLICY, headers_file
from gpt_onnx.web._samples import tokenizer_samples

PAGE = "index.html"
BUNDLE = "bundle"
LIBRARIES = "vendor"
_PARTS = {LIBRARIES: "runtime", BUNDLE: "model"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteReport:
    """What was built."""

    path: Path
    name: str
    """What the model is called."""
    files: int
    bytes: int
    """Of all files."""
    parts: Mapping[str, int]
    """Bytes that a first visit loads: of the page itself, of the runtime with its tokenizer, of the model."""
    built: bool = True
    """False: the site was there already, made of the same."""
    advice: str | None = None
    """How the page would be faster; None where it would not."""

    @property
    def first_visit_bytes(self) -> int:
        """Bytes that a first visit loads; a later one loads none."""
        return sum(self.parts.values())

    def to_json(self) -> dict[str, Any]:
        """Return what ``gpt-onnx web --json`` prints."""
        return {
            "path": str(self.path),
            "name": self.name,
            "files": self.files,
            "bytes": self.bytes,
            "first_visit": {**self.parts, "total": self.first_visit_bytes},
            "built": self.built,
            "advice": self.advice,
        }


def _copy_page(staging: Path, name: str) -> None:
    """Copy the page's own files, and fill in what depends on the bundle."""
    with as_file(files("gpt_onnx.web") / "site") as source:
        shutil.copytree(source, staging, dirs_exist_ok=True, copy_function=shutil.copyfile)
    page = staging / PAGE
    text = page.read_text(encoding="utf-8").replace("@CSP@", PAGE_POLICY).replace("@NAME@", html.escape(name))
    page.write_text(text, encoding="utf-8")
    (staging / HEADERS_FILE).write_text(headers_file(), encoding="utf-8")


def _copy_bundle(staging: Path, bundle: Bundle) -> None:
    """Copy the bundle whole: ``gpt-onnx verify site/bundle`` and other clients take it as it is."""
    for name in (*bundle.manifest.files, "manifest.json"):
        target = staging / BUNDLE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bundle.file(name), target)
    bundle.check_in_place()


def _checked_entries(staging: Path, bundle: Bundle) -> dict[str, dict[str, Any]]:
    """Hash what was copied; the bundle's files must be those that were verified."""
    entries = {path: entry_of(staging / path) for path in paths_in(staging) if path not in UNLISTED}
    for name, promised in bundle.manifest.files.items():
        if entries[f"{BUNDLE}/{name}"]["sha256"] != promised.sha256:
            raise BundleError(f"{bundle.path / name} was changed while it was copied; build the site again.")
    return entries


def _ingredients(bundle: Bundle, libraries: Path) -> str:
    """Return a hash of all that a site is made of."""
    digest = hashlib.sha256(bundle.file("manifest.json").read_bytes())
    with as_file(files("gpt_onnx.web") / "site") as source:
        for folder in (source, libraries):
            for path in paths_in(folder):
                digest.update(path.encode() + bytes.fromhex(entry_of(folder / path)["sha256"]))
    digest.update(headers_file().encode())
    return digest.hexdigest()


def _parts(listing: Listing) -> dict[str, int]:
    sizes = dict.fromkeys(("page", *_PARTS.values()), 0)
    for path in listing.first_visit:
        sizes[_PARTS.get(path.split("/")[0], "page")] += listing.files[path]["size"]
    return sizes


def _report(path: Path, listing: Listing, manifest: Manifest, *, built: bool) -> SiteReport:
    found = list(paths_in(path))
    return SiteReport(
        path=path,
        name=listing.name,
        files=len(found),
        bytes=sum((path / name).stat().st_size for name in found),
        parts=_parts(listing),
        built=built,
        advice=advice_on(manifest),
    )


def _there_already(destination: Path, built_from: str, manifest: Manifest) -> SiteReport | None:
    """Return the report of a site that is there, whole, and made of the same; else None."""
    values = read_listing(destination)
    if values.get("built_from") != built_from:
        return None
    sizes = {name: entry["size"] for name, entry in values["files"].items()}
    paths = {name: destination / name for name in sizes}
    if any(not path.is_file() or path.stat().st_size != sizes[name] for name, path in paths.items()):
        return None
    keys = ("name", "built_from", "files", "tokenizer_samples")
    return _report(destination, Listing(**{key: values[key] for key in keys}), manifest, built=False)


def build_site(
    bundle: str | Path,
    destination: str | Path,
    libraries: Callable[[], Path],
    *,
    overwrite: bool = False,
    reuse: bool = False,
) -> SiteReport:
    """Verify a bundle and build the site that runs it.

    Args:
        bundle: The bundle's folder.
        destination: Where the site shall be.
        libraries: Returns what ``vendor`` does; asked when nothing stands against the site any more.
        overwrite: Whether a site that is there may be replaced; anything else is never replaced.
        reuse: Whether a site that is there and made of the same is left as it is.

    Raises:
        BundleError: if the bundle is damaged or no browser can run it, or the destination may not or cannot
            be written.
    """
    opened = open_bundle(bundle)
    check_fit(opened)
    if not reuse:
        check_destination(Path(destination), overwrite=overwrite)
    fetched = libraries()
    samples, built_from = tokenizer_samples(opened), _ingredients(opened, fetched)
    there = _there_already(Path(destination), built_from, opened.manifest) if reuse else None
    if there is not None:
        return there
    check = partial(check_destination, overwrite=overwrite)
    with replacing(destination, check, lambda folder: None) as staging:
        _copy_page(staging, opened.manifest.name)
        shutil.copytree(fetched, staging / LIBRARIES, copy_function=shutil.copyfile)
        _copy_bundle(staging, opened)
        listing = Listing(
            name=opened.manifest.name,
            built_from=built_from,
            files=_checked_entries(staging, opened),
            tokenizer_samples=samples,
        )
        write_listing(staging, listing)
    return _report(Path(destination), listing, opened.manifest, built=True)
