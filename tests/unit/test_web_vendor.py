"""The page's libraries come from npm once, at their pins, or from a folder that has them; never otherwise."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from importlib.resources import files
from pathlib import Path

import pytest

import gpt_onnx.web._vendor as vendor
from gpt_onnx.errors import InputError, ProviderError

CONTENTS = {"run.mjs": b"export default 1;", "run.wasm": b"\0asm", "words.mjs": b"export default 2;"}
LIBRARIES = tuple(
    vendor.Library(
        package="runtime" if name.startswith("run") else "@scope/words",
        path=f"dist/{name}",
        sha256=hashlib.sha256(content).hexdigest(),
    )
    for name, content in CONTENTS.items()
)


@pytest.fixture(autouse=True)
def small_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "LIBRARIES", LIBRARIES)


def _npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a program called npm, and the tools that it uses, where programs are looked for."""
    folder.mkdir(parents=True)
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")


def _unpacked(folder: Path) -> dict[str, bytes]:
    """Return what is kept, by the names that it had."""
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {
        name.removesuffix(".gz"): gzip.decompress(content) if name.endswith(".gz") else content
        for name, content in kept.items()
    }


def _node_modules(folder: Path) -> Path:
    for library in LIBRARIES:
        path = folder / "node_modules" / library.package / library.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENTS[library.name])
    return folder


def test_npm_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _node_modules(tmp_path / "source")
    log = tmp_path / "calls"
    _npm(
        tmp_path / "bin",
        monkeypatch,
        f'echo "$@" >> {log}; cp -r {source}/node_modules . && ls package-lock.json',
    )
    folder = vendor.vendor(tmp_path / "cache")
    assert _unpacked(folder) == CONTENTS
    assert (folder / "run.wasm.gz").exists()
    assert vendor.vendor(tmp_path / "cache") == folder
    assert log.read_text().splitlines() == ["ci --ignore-scripts --no-audit --no-fund --loglevel=error"]


def test_lost_file_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _node_modules(tmp_path / "source")
    _npm(tmp_path / "bin", monkeypatch, f"cp -r {source}/node_modules .")
    folder = vendor.vendor(tmp_path / "cache")
    for lost in (b"half", gzip.compress(b"another"), gzip.compress(CONTENTS["run.wasm"])[:-9]):
        (folder / "run.wasm.gz").write_bytes(lost)
        assert _unpacked(vendor.vendor(tmp_path / "cache")) == CONTENTS


def test_missing_npm_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match=r"^npm is not installed here.*--assets\.$"):
        vendor.vendor(tmp_path / "cache")


def test_failing_npm_is_one_sentence_without_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "echo 'npm error network request to https://example.org/x failed, reason: no host' >&2"
    _npm(tmp_path / "bin", monkeypatch, f"{words}; echo 'npm error A complete log of this run' >&2; exit 1")
    with pytest.raises(ProviderError) as caught:
        vendor.vendor(tmp_path / "cache")
    assert str(caught.value) == (
        "npm cannot fetch the page's libraries (npm error network request to the registry failed, reason: no "
        "host); see that you are online, or name a folder that has them with --assets."
    )
    assert not list((tmp_path / "cache").glob("*")) if (tmp_path / "cache").exists() else True


def test_what_npm_brings_is_held_to_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _node_modules(tmp_path / "source")
    (source / "node_modules/runtime/dist/run.wasm").write_bytes(b"another")
    _npm(tmp_path / "bin", monkeypatch, f"cp -r {source}/node_modules .")
    with pytest.raises(InputError, match=r"run\.wasm is not the pinned one"):
        vendor.vendor(tmp_path / "cache")


@pytest.mark.parametrize("inside", ["", "node_modules"])
def test_assets_as_npm_lays_them_out(tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = vendor.vendor(tmp_path / "cache", _node_modules(tmp_path / "source") / inside)
    assert _unpacked(folder) == CONTENTS


def test_assets_by_bare_names(tmp_path: Path) -> None:
    for name, content in CONTENTS.items():
        (tmp_path / name).write_bytes(content)
    folder = vendor.vendor(tmp_path / "cache", tmp_path)
    assert _unpacked(folder) == CONTENTS


def test_assets_that_lack_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no run\.mjs of the npm package runtime"):
        vendor.vendor(tmp_path / "cache", tmp_path)


def test_lock_file_pins_hashes_and_names_no_host() -> None:
    lock = json.loads((files("gpt_onnx.web") / "npm" / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert all(re.match("sha512-", entry["integrity"]) for entry in packages.values())
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    wanted = json.loads((files("gpt_onnx.web") / "npm" / "package.json").read_text())["dependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
