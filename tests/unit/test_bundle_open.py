"""``open_bundle`` verifies names, kinds, sizes and hashes, in that order, and names the file at fault."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpt_onnx.bundle._open as opening
from gpt_onnx.bundle import Manifest, check_graph, open_bundle, seal
from gpt_onnx.errors import BundleError

BundleMaker = Callable[..., Path]


def test_a_sealed_bundle_opens(make_bundle: BundleMaker) -> None:
    bundle = open_bundle(str(make_bundle()))
    assert bundle.graph_path() == bundle.path / "onnx/model.onnx"
    assert bundle.file("tokenizer.json").read_text() == "{}\n"
    for name, entry in bundle.manifest.files.items():
        content = (bundle.path / name).read_bytes()
        assert (entry.size, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_what_a_bundle_lacks_is_named(make_bundle: BundleMaker) -> None:
    bundle = open_bundle(make_bundle())
    with pytest.raises(BundleError, match=r"has no parity\.json; it has config\.json, onnx/model\.onnx"):
        bundle.file("parity.json")
    with pytest.raises(BundleError, match="no graph 'decode'; layout dynamic has model"):
        bundle.graph_path("decode")
    with pytest.raises(BundleError, match=r"has no .*etc"):
        bundle.file("../../etc/passwd")


def test_sealing_depends_on_content_alone(
    make_bundle: BundleMaker, make_manifest: Callable[..., Manifest]
) -> None:
    one, other = make_bundle("first"), make_bundle("other")
    os.utime(other / "config.json", (1, 1))
    seal(other, make_manifest())
    assert (one / "manifest.json").read_bytes() == (other / "manifest.json").read_bytes()
    assert b"first" not in (one / "manifest.json").read_bytes()


def test_progress_counts_every_byte(make_bundle: BundleMaker) -> None:
    counted: list[int] = []
    bundle = open_bundle(make_bundle(), progress=counted.append)
    assert sum(counted) == sum(entry.size for entry in bundle.manifest.files.values())


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _link(path: Path) -> None:
    bundle = path.parent.parent if path.parent.name == "onnx" else path.parent
    moved = bundle.parent / ("moved-" + path.name)
    path.rename(moved)
    path.symlink_to(moved)


def _socket(path: Path) -> None:
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "longer": (_append, "bytes and its manifest says"),
    "shorter": (lambda path: os.truncate(path, 1), "has 1 bytes and its manifest says"),
    "flipped": (_flip, "is damaged: its SHA-256 is not the manifest's"),
    "missing": (Path.unlink, "lacks {name}, which its manifest lists"),
    "link": (_link, "a link"),
    "pipe": (_pipe, "no plain file"),
    "socket": (_socket, "no plain file"),
    "folder": (_folder, "no plain file"),
}


@pytest.mark.parametrize("name", ["config.json", "onnx/model.onnx", "onnx/model.onnx_data"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(make_bundle: BundleMaker, damage: str, name: str) -> None:
    path = make_bundle("inside")
    act, said = DAMAGES[damage]
    act(path / name)
    with pytest.raises(BundleError) as caught:
        open_bundle(path)
    assert said.format(name=name) in str(caught.value)
    assert Path(name).name in str(caught.value)


@pytest.mark.parametrize("name", ["extra.txt", "onnx/extra", ".DS_Store", "onnx/.x"])
def test_an_unlisted_file_is_refused(make_bundle: BundleMaker, name: str) -> None:
    path = make_bundle()
    (path / name).write_text("x")
    with pytest.raises(BundleError, match="which its manifest does not list"):
        open_bundle(path)


@pytest.mark.parametrize("name", ["sub", "onnx/sub"])
def test_another_folder_is_refused(make_bundle: BundleMaker, name: str) -> None:
    path = make_bundle()
    (path / name).mkdir()
    with pytest.raises(BundleError, match="no plain file; remove it"):
        open_bundle(path)


def test_a_linked_graph_folder_is_refused(make_bundle: BundleMaker, tmp_path: Path) -> None:
    path = make_bundle()
    (path / "onnx").rename(tmp_path / "elsewhere")
    (path / "onnx").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match="'onnx', a link"):
        open_bundle(path)


def test_a_manifest_that_is_a_link_a_pipe_or_a_folder_is_refused(make_bundle: BundleMaker) -> None:
    for name, act in (("a", _link), ("b", _pipe), ("c", _folder), ("d", _socket)):
        path = make_bundle(f"bundles/{name}")
        act(path / "manifest.json")
        with pytest.raises(BundleError, match=r"manifest\.json"):
            open_bundle(path)


def test_a_huge_manifest_is_not_read(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    os.truncate(path / "manifest.json", 1 << 40)  # sparse
    with pytest.raises(BundleError, match="at most 1048576 are allowed"):
        open_bundle(path)


def test_sizes_are_checked_before_anything_is_hashed(
    make_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_bundle()
    monkeypatch.setattr(opening, "hash_file", lambda *_: pytest.fail("hashed"))
    _append(path / "onnx/model.onnx_data")
    with pytest.raises(BundleError, match="copy it again"):
        open_bundle(path)


def test_no_hash_skips_hashing_and_nothing_else(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    _flip(path / "tokenizer.json")
    open_bundle(path, check_hashes=False)
    _append(path / "tokenizer.json")
    with pytest.raises(BundleError, match="bytes and its manifest says"):
        open_bundle(path, check_hashes=False)


def test_every_file_is_covered_by_the_hashes(make_bundle: BundleMaker) -> None:
    """Flip single bits all over: each is an error, whatever file it is in."""
    path = make_bundle()
    generator = random.Random(0)
    for name in ["manifest.json", *open_bundle(path).manifest.files]:
        content = (path / name).read_bytes()
        for _ in range(40):
            changed = bytearray(content)
            changed[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
            (path / name).write_bytes(changed)
            _refuses_or_changes_no_file(path, name)
        (path / name).write_bytes(content)


def _refuses_or_changes_no_file(path: Path, name: str) -> None:
    """A bit of the manifest may change what it says of the model, and never what is loaded."""
    try:
        bundle = open_bundle(path)
    except BundleError:
        return
    assert name == "manifest.json"
    assert set(bundle.manifest.files) > {"onnx/model.onnx", "onnx/model.onnx_data"}


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, said in (("file", "not a folder"), ("absent", "not there"), ("empty", "no manifest.json")):
        with pytest.raises(BundleError, match=said):
            open_bundle(tmp_path / name)


def test_a_newer_format_is_named_with_its_file(make_bundle: BundleMaker) -> None:
    path = make_bundle()
    values = json.loads((path / "manifest.json").read_text()) | {"format_version": 7, "new": []}
    (path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(
        BundleError, match=r"manifest\.json is no manifest: its format_version is 7 and this gpt-onnx"
    ):
        open_bundle(path)


def test_a_link_to_a_bundle_opens(make_bundle: BundleMaker, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(make_bundle())
    check_graph(open_bundle(tmp_path / "current"))


def _replace(path: Path, other: Path) -> None:
    path.rename(path.with_name("gone"))
    other.rename(path)


def test_a_bundle_replaced_meanwhile_is_verified_anew(
    make_bundle: BundleMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = make_bundle("one"), make_bundle("other", layout="plain")
    real: Any = opening._verify_listing
    waiting = [other]

    def replace_once(folder: Path, manifest: Manifest) -> None:
        if waiting:
            _replace(path, waiting.pop())
        real(folder, manifest)

    monkeypatch.setattr(opening, "_verify_listing", replace_once)
    assert open_bundle(path).manifest.graph.layout == "plain"


def test_a_bundle_replaced_after_opening_is_noticed(make_bundle: BundleMaker) -> None:
    path, other = make_bundle("one"), make_bundle("other")
    bundle = open_bundle(path)
    bundle.check_in_place()
    _replace(path, other)
    with pytest.raises(BundleError, match="was replaced while it was being loaded"):
        bundle.check_in_place()


def test_a_file_named_as_the_graph_folder_is_refused(
    tmp_path: Path, make_manifest: Callable[..., Manifest]
) -> None:
    (tmp_path / "onnx").write_text("x")
    with pytest.raises(BundleError, match="name of the manifest itself or of the folder of graphs"):
        seal(tmp_path, make_manifest())


def test_sealing_refuses_what_no_bundle_may_hold(
    make_bundle: BundleMaker, make_manifest: Callable[..., Manifest]
) -> None:
    path = make_bundle()
    (path / "spaced name").write_text("x")
    with pytest.raises(BundleError, match="'spaced name'"):
        seal(path, make_manifest())
    (path / "spaced name").unlink()
    (path / "onnx/model.onnx").unlink()
    with pytest.raises(BundleError, match=r"files does not list 'onnx/model\.onnx'"):
        seal(path, make_manifest())
    shutil.rmtree(path)
    path.mkdir()
    with pytest.raises(BundleError, match="has no files"):
        seal(path, make_manifest())
