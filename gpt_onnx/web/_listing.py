"""What a site says of itself: ``site.json``, the list of its files with sizes and hashes.

The page reads it and holds every file to it. ``sw.js`` has the same hashes, so that a changed file is a new
service worker.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx.errors import BundleError

LISTING = "site.json"
WORKER = "sw.js"
HEADERS_FILE = "_headers"
FORMAT = "gpt-onnx site"
FORMAT_VERSION = 1
UNLISTED = (LISTING, WORKER, HEADERS_FILE)
"""What cannot be in the list, or is no part of the page."""

_FIRST_VISIT = re.compile(
    r"(?!bundle/)|bundle/(manifest\.json|generation_config\.json|tokenizer\.json|reference\.safetensors|onnx/.*)"
)
"""What a first visit loads: all but the files of the bundle that only other clients read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of a site."""

    name: str
    """What the model is called."""
    built_from: str
    """Hash of all that the site was made of."""
    files: Mapping[str, Mapping[str, Any]]
    """Path to ``size`` and ``sha256``."""
    tokenizer_samples: Sequence[tuple[str, Sequence[int]]]

    def to_json(self) -> dict[str, Any]:
        """Return the object of site.json."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "name": self.name,
            "built_from": self.built_from,
            "files": self.files,
            "tokenizer_samples": self.tokenizer_samples,
        }

    @property
    def first_visit(self) -> list[str]:
        """Paths that a first visit loads."""
        return [path for path in self.files if _FIRST_VISIT.match(path)]


def entry_of(path: Path) -> dict[str, Any]:
    """Return size and hash of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"size": path.stat().st_size, "sha256": digest.hexdigest()}


def paths_in(folder: Path) -> Iterator[str]:
    """Yield the files of a folder and the folders in it, with "/" between, in order."""
    for path in sorted(folder.rglob("*")):
        if not path.is_dir():
            yield path.relative_to(folder).as_posix()


def write_listing(folder: Path, listing: Listing) -> None:
    """Write site.json, and the hashes into the service worker."""
    text = json.dumps(listing.to_json(), ensure_ascii=False, sort_keys=True, indent=1)
    (folder / LISTING).write_text(text + "\n", encoding="utf-8")
    hashes = {path: entry["sha256"] for path, entry in listing.files.items()}
    hashes[LISTING] = entry_of(folder / LISTING)["sha256"]
    worker = (folder / WORKER).read_text(encoding="utf-8")
    filled = worker.replace("const FILES = {};", f"const FILES = {json.dumps(hashes, sort_keys=True)};", 1)
    assert filled != worker
    (folder / WORKER).write_text(filled, encoding="utf-8")


def read_listing(folder: Path) -> dict[str, Any]:
    """Return what a folder's site.json says; empty where the folder is no site."""
    try:
        values = json.loads((folder / LISTING).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_site = (
        isinstance(values, dict) and values.get("format") == FORMAT and isinstance(values.get("files"), dict)
    )
    return values if is_site else {}


def check_destination(destination: Path, *, overwrite: bool) -> None:
    """Refuse a destination that must not be replaced, before any work is done.

    Raises:
        BundleError: if it is there and ``overwrite`` is false, or it is not a site and not an empty folder.
    """
    if not destination.exists() and not destination.is_symlink():
        return
    if not destination.is_dir():
        raise BundleError(f"{destination} is a file; a site is a folder: choose another name.")
    if not overwrite:
        raise BundleError(
            f"{destination} is already there; choose another name, or replace it with --overwrite."
        )
    found = set(paths_in(destination))
    listed = read_listing(destination).get("files", {})
    if found and not listed:
        raise BundleError(
            f"{destination} is a folder and no site, and is not overwritten; choose another name."
        )
    if foreign := sorted(found - set(listed) - set(UNLISTED)):
        raise BundleError(f"{destination} holds {foreign[0]}, no part of the site there; move it away first.")
