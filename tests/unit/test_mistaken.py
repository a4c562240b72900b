"""What was named as a bundle and is none: one sentence says what it is, and what to run."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_onnx.bundle import open_bundle
from gpt_onnx.bundle._mistaken import no_bundle
from gpt_onnx.errors import BundleError

BundleMaker = Callable[..., Path]
Make = Callable[[Path], None]


def folder_of(*names: str) -> Make:
    def make(path: Path) -> None:
        path.mkdir()
        for name in names:
            (path / name).write_text("{}")

    return make


def zip_of(name: str) -> Make:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, b"")

    return make


def damaged_zip(changes: dict[int, bytes]) -> Make:
    """A zip with other bytes in its list of members, each so far from where the list begins."""

    def make(path: Path) -> None:
        zip_of("b/manifest.json")(path)
        data = bytearray(path.read_bytes())
        start = data.index(b"PK\1\2")
        for at, content in changes.items():
            data[start + at : start + at + len(content)] = content
        path.write_bytes(data)

    return make


DAMAGES: dict[str, dict[int, bytes]] = {
    "of a version of later days": {6: b"\xff\x00"},
    "with a name that is no UTF-8": {8: b"\x00\x08", 46: b"\xff"},
    "without a list": {0: b"XX"},
}


def link_to(name: str) -> Make:
    return lambda path: path.symlink_to(path.parent / name)


def file_of(content: bytes) -> Make:
    def make(path: Path) -> None:
        path.write_bytes(content)

    return make


CASES: dict[str, tuple[str, Make, str]] = {
    "gguf": ("m.gguf", file_of(b"GGUF\3"), "is a GGUF file and no bundle; make one of it with {export}."),
    "gguf by its bytes": (
        "m",
        file_of(b"GGUF\3"),
        "is a GGUF file and no bundle; make one of it with {export}.",
    ),
    "torch.save": (
        "a b.pt",
        zip_of("archive/data.pkl"),
        "is a PyTorch checkpoint and no bundle; make one of it with {export}.",
    ),
    "old torch.save": (
        "m.pth",
        file_of(b"\x80\2"),
        "is a PyTorch checkpoint and no bundle; make one of it with {export}.",
    ),
    "zip": (
        "b.zip",
        zip_of("b/manifest.json"),
        "is a zip archive and no bundle; unpack it, and name the folder in it that has a manifest.json.",
    ),
    **{
        f"zip {what}": (
            "b",
            damaged_zip(changes),
            "is a zip archive and no bundle; unpack it, and name the folder in it that has a manifest.json.",
        )
        for what, changes in DAMAGES.items()
    },
    "link to itself": (
        "m",
        link_to("m"),
        "is a link that leads to nothing, or to itself; name the bundle's own folder.",
    ),
    "link to nothing": (
        "m",
        link_to("absent"),
        "is a link that leads to nothing, or to itself; name the bundle's own folder.",
    ),
    "tar": (
        "b.tar.gz",
        file_of(b"\x1f\x8b"),
        "is an archive and no bundle; unpack it, and name the folder in it that has a manifest.json.",
    ),
    "safetensors": (
        "m.safetensors",
        file_of(b"x"),
        "is a file of weights and no bundle; make one of it with {export}.",
    ),
    "onnx": (
        "m.onnx",
        file_of(b"x"),
        "is an ONNX graph by itself and no bundle; name the folder that gpt-onnx export made, or export the "
        "checkpoint that the graph is of.",
    ),
    "code": ("m.py", file_of(b"x"), "is code and no bundle; make one of it with {export}:NAME."),
    "code with a name": ("m.py:f", lambda path: None, "is code and no bundle; make one of it with {export}."),
    "checkpoint": (
        "hf",
        folder_of("config.json", "model.safetensors"),
        "is a checkpoint and no bundle; make one of it with {export}.",
    ),
    "checkpoint in parts": (
        "hf",
        folder_of("config.json", "pytorch_model.bin.index.json"),
        "is a checkpoint and no bundle; make one of it with {export}.",
    ),
    "text": ("m.txt", file_of(b"x"), "is not a folder; a bundle is a folder."),
    "empty": ("m", folder_of(), "is no bundle: it has no manifest.json; make one with gpt-onnx export."),
    "nothing": ("m", lambda path: None, "is not there; a bundle is a folder."),
    "braces": ("{m}", file_of(b"GGUF"), "is a GGUF file and no bundle; make one of it with {export}."),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_said_what_it_is(tmp_path: Path, case: str) -> None:
    name, make, said = CASES[case]
    path = tmp_path / name
    make(path)
    quoted = f"'{path}'" if set(" {}") & set(name) else path
    with pytest.raises(BundleError) as told:
        open_bundle(path)
    assert str(told.value) == f"{path} {said.format(export=f'gpt-onnx export {quoted}')}"


@pytest.mark.parametrize("inner", ["onnx", "onnx/model.onnx", "manifest.json", "config.json"])
def test_a_part_of_a_bundle_is_told_with_the_bundle(make_bundle: BundleMaker, inner: str) -> None:
    bundle = make_bundle()
    assert no_bundle(bundle / inner) == (
        f"{bundle / inner} is a part of a bundle and no bundle; name the bundle, {bundle}."
    )


def test_a_site_and_a_folder_are_told_with_the_bundle_in_them(
    make_bundle: BundleMaker, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(make_bundle(), site / "bundle")
    assert no_bundle(site) == f"{site} is a folder with a bundle in it and no bundle; name {site / 'bundle'}."
    (site / "sw.js").write_text("")
    assert no_bundle(site) == (
        f"{site} is a site that gpt-onnx web made and no bundle; name the bundle in it, {site / 'bundle'}."
    )


def test_a_file_of_a_checkpoint_is_told_with_its_folder(tmp_path: Path) -> None:
    folder_of("config.json", "model.safetensors")(tmp_path / "hf")
    file = tmp_path / "hf" / "model.safetensors"
    assert no_bundle(file) == (
        f"{file} is one file of a checkpoint and no bundle; make one of it with "
        f"gpt-onnx export {tmp_path / 'hf'}."
    )


def test_what_is_left_of_a_bundle_is_no_checkpoint(make_bundle: BundleMaker) -> None:
    bundle = make_bundle()
    (bundle / "manifest.json").unlink()
    (bundle / "reference.safetensors").write_bytes(b"")
    assert no_bundle(bundle).startswith(f"{bundle} is no bundle: it has no manifest.json")
