"""What a path is that was named as a bundle and is none, and what to run instead.

    no_bundle(Path("model.gguf"))
    # 'model.gguf is a GGUF file and no bundle; make one of it with gpt-onnx export model.gguf.'

A path is looked at from outside: names, and the first bytes of a file.
"""

from __future__ import annotations

import contextlib
import shlex
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx.bundle._codec import MAX_MANIFEST_BYTES, parse_object
from gpt_onnx.bundle._hashing import read_bounded
from gpt_onnx.bundle._manifest import FORMAT
from gpt_onnx.bundle._names import GRAPH_FOLDER, MANIFEST
from gpt_onnx.errors import BundleError

EXPORT = "make one of it with gpt-onnx export {command}"
UNPACK = "unpack it, and name the folder in it that has a manifest.json"
WEIGHTS = ("*.safetensors", "*.bin", "*.index.json")
"""Files of a checkpoint's weights."""
LISTED = 20
"""Entries of a folder that are looked at for a bundle."""


def is_manifest(path: Path) -> bool:
    """Whether a file is a bundle's manifest, of any version."""
    with contextlib.suppress(BundleError, OSError):
        return path.is_file() and parse_object(read_bounded(path, MAX_MANIFEST_BYTES)).get("format") == FORMAT
    return False


def _around(path: Path) -> Path | None:
    """Return the bundle that a path lies in; None where it lies in none."""
    above = list(path.absolute().parents)[:2]
    return next((folder for folder in above if is_manifest(folder / MANIFEST)), None)


def _inside(path: Path) -> Path | None:
    """Return a bundle that a folder holds."""
    if not path.is_dir():
        return None
    entries = sorted(path.iterdir())[:LISTED]
    return next((entry for entry in entries if is_manifest(entry / MANIFEST)), None)


def _starts(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _is_torch_zip(path: Path) -> bool:
    """Whether torch.save or LibTorch wrote a file."""
    if not (path.is_file() and zipfile.is_zipfile(path)):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error):  # damaged, one way or another
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of path that is no bundle."""

    words: str
    """After the path."""
    remedy: str
    holds: Callable[[Path], bool]


def _suffix(*suffixes: str) -> Callable[[Path], bool]:
    return lambda path: path.is_file() and path.suffix.lower() in suffixes


KINDS: tuple[Kind, ...] = (
    Kind(words="is code", remedy=EXPORT, holds=lambda path: ".py:" in str(path)),
    Kind(words="is code", remedy=f"{EXPORT}:NAME", holds=lambda path: path.suffix == ".py"),
    Kind(
        words="is a part of a bundle",
        remedy="name the bundle, {target}",
        holds=lambda path: path.exists() and _around(path) is not None,
    ),
    Kind(
        words="is a site that gpt-onnx web made",
        remedy="name the bundle in it, {target}",
        holds=lambda path: (path / "sw.js").is_file() and _inside(path) is not None,
    ),
    Kind(
        words="is a folder with a bundle in it",
        remedy="name {target}",
        holds=lambda path: _inside(path) is not None,
    ),
    Kind(
        words="is one file of a checkpoint",
        remedy=EXPORT.format(command="{folder}"),
        holds=lambda path: (
            _suffix(".safetensors", ".bin", ".json")(path) and (path.parent / "config.json").is_file()
        ),
    ),
    Kind(words="is a GGUF file", remedy=EXPORT, holds=lambda path: _starts(path, b"GGUF")),
    Kind(words="is a PyTorch checkpoint", remedy=EXPORT, holds=_is_torch_zip),
    Kind(words="is a PyTorch checkpoint", remedy=EXPORT, holds=_suffix(".pt", ".pth", ".ckpt", ".bin")),
    Kind(words="is a zip archive", remedy=UNPACK, holds=lambda path: _starts(path, b"PK\x03\x04")),
    Kind(words="is an archive", remedy=UNPACK, holds=_suffix(".tar", ".gz", ".tgz", ".xz", ".zst", ".7z")),
    Kind(words="is a file of weights", remedy=EXPORT, holds=_suffix(".safetensors", ".npz")),
    Kind(
        words="is an ONNX graph by itself",
        remedy="name the folder that gpt-onnx export made, or export the checkpoint that the graph is of",
        holds=_suffix(".onnx"),
    ),
    Kind(
        words="is a checkpoint",
        remedy=EXPORT,
        holds=lambda path: (
            (path / "config.json").is_file()
            and not (path / GRAPH_FOLDER).exists()  # what is left of a bundle
            and any(next(path.glob(pattern), None) for pattern in WEIGHTS)
        ),
    ),
)
"""What a path may be instead of a bundle, the surest first."""


def _kind_of(path: Path) -> Kind | None:
    with contextlib.suppress(OSError):
        return next((kind for kind in KINDS if kind.holds(path)), None)
    return None


def no_bundle(path: Path) -> str:
    """Say that a path is no bundle, what it is, and what to do."""
    if (kind := _kind_of(path)) is not None:
        remedy = kind.remedy.format(
            command=shlex.quote(str(path)),
            folder=shlex.quote(str(path.parent)),
            target=_around(path) or _inside(path),
        )
        return f"{path} {kind.words} and no bundle; {remedy}."
    if path.is_dir():
        return f"{path} is no bundle: it has no {MANIFEST}; make one with gpt-onnx export."
    if path.is_symlink() and not path.exists():
        return f"{path} is a link that leads to nothing, or to itself; name the bundle's own folder."
    return f"{path} is {'not a folder' if path.exists() else 'not there'}; a bundle is a folder."
