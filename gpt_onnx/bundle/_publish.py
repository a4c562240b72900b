"""Publish a bundle whole or not at all.

    with publishing("my-gpt", overwrite=False) as staging:
        ...                         # write the files into the folder ``staging``
        seal(staging, manifest)     # the last one is the manifest

The files are written beside the destination, flushed, and moved into place last, by an exchange of the two
folders where the system has one. A killed, failed or interrupted block leaves the old bundle as it was.
Whoever has files of the old bundle open keeps them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpt_onnx._interrupts import interrupts_held
from gpt_onnx._paths import real_path
from gpt_onnx._whole_files import flush_to_disk
from gpt_onnx.bundle._codec import MAX_MANIFEST_BYTES, parse_object
from gpt_onnx.bundle._exchange import exchange
from gpt_onnx.bundle._hashing import read_bounded
from gpt_onnx.bundle._manifest import FORMAT
from gpt_onnx.bundle._names import GRAPH_FOLDER, MANIFEST, shorten
from gpt_onnx.bundle._open import open_bundle
from gpt_onnx.bundle._staging import OLD, Staging, hidden_name, make_staging, recover, sweep
from gpt_onnx.errors import BundleError

_DISK_FAULTS = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "a file would be larger than allowed; choose another file system",
    errno.EROFS: "the file system is read-only; choose another destination",
    errno.EIO: "the disk reports an input/output error; choose another one",
}


def _manifest_values(folder: Path) -> dict[str, Any]:
    """Return a manifest's raw values, of any version; empty where there is none that can be read."""
    with contextlib.suppress(BundleError):
        values = parse_object(read_bounded(folder / MANIFEST, MAX_MANIFEST_BYTES))
        if values.get("format") == FORMAT and isinstance(values.get("files"), dict):
            return values
    return {}


def _foreign_files(folder: Path) -> Iterator[str]:
    """Yield what is in ``folder`` and no part of the bundle there."""
    listed = {MANIFEST, GRAPH_FOLDER, *_manifest_values(folder).get("files", {})}
    for inside, prefix in ((folder, ""), (folder / GRAPH_FOLDER, f"{GRAPH_FOLDER}/")):
        if inside.is_dir():
            yield from (prefix + name for name in sorted(os.listdir(inside)) if prefix + name not in listed)


def refuse_inside_a_bundle(destination: Path) -> None:
    """Refuse a destination, its links followed, within a bundle, which holds what it lists and no other file.

    Raises:
        BundleError: if one of the folders above it is a bundle.
    """
    for folder in destination.parents:
        if (folder / MANIFEST).is_file() and _manifest_values(folder):
            raise BundleError(
                f"{destination} is inside the bundle {folder}, which may hold nothing else; choose another "
                "place."
            )


def check_destination(destination: Path, *, overwrite: bool) -> None:
    """Refuse a destination that must not be replaced, before any work is done.

    Raises:
        BundleError: if it is there and ``overwrite`` is false, or it is not a bundle and not an empty folder.
    """
    if not os.path.lexists(destination):
        return
    if destination.is_symlink() and not destination.exists():
        raise BundleError(f"{destination} is a link that leads to itself; choose another name.")
    if not destination.is_dir():
        raise BundleError(f"{destination} is a file; a bundle is a folder: choose another name.")
    if not overwrite:
        raise BundleError(
            f"{destination} is already there; choose another name, or replace it with --overwrite."
        )
    if os.listdir(destination) and not _manifest_values(destination):
        raise BundleError(
            f"{destination} is a folder and no bundle, and is not overwritten; choose another name."
        )
    if foreign := next(_foreign_files(destination), None):
        raise BundleError(
            f"{destination} holds {shorten(foreign)}, no part of the bundle there; move it away first."
        )


def _make_parents(folder: Path, made: list[Path]) -> None:
    """Make the missing folders above a destination; put them into ``made``, the deepest first."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        made.insert(0, path)
        flush_to_disk(path.parent)


def _settle(staging: Staging) -> None:
    """Give files and folders the modes that the umask asks for, and flush them, folders last."""
    for folder, _, names in os.walk(staging.path, topdown=False):
        for path in sorted(Path(folder, name) for name in names):
            path.chmod(staging.mode & 0o666)
            flush_to_disk(path)
        Path(folder).chmod(staging.mode)
        flush_to_disk(Path(folder))


def _swap_by_renames(staging: Staging, destination: Path) -> None:
    """Replace in two renames; ``recover`` mends what a kill between them leaves."""
    old = hidden_name(destination, staging.token, OLD)
    destination.rename(old)
    try:
        staging.path.rename(destination)
    except BaseException:
        if not os.path.lexists(destination):
            old.rename(destination)
        raise
    flush_to_disk(destination.parent)
    shutil.rmtree(old, ignore_errors=True)


def _move_into_place(staging: Staging, destination: Path) -> None:
    if not os.path.lexists(destination):
        staging.path.rename(destination)
    elif not exchange(staging.path, destination):
        _swap_by_renames(staging, destination)
    flush_to_disk(destination.parent)


@contextlib.contextmanager
def _faults_told(destination: Path, *, only_of_disks: bool = False) -> Iterator[None]:
    """Turn what the system says into one sentence."""
    try:
        yield
    except OSError as exc:
        if only_of_disks and exc.errno not in _DISK_FAULTS:
            raise
        reason = _DISK_FAULTS.get(exc.errno or 0, f"{exc.strerror or exc}; choose another place")
        raise BundleError(f"{destination} cannot be written: {reason}.") from exc


def _clear(staging: Staging | None, made: list[Path]) -> None:
    """Delete a staging folder, and the folders above it that were made for it, the deepest first."""
    if staging is not None:
        staging.remove()
    for folder in made:
        with contextlib.suppress(OSError):  # not empty: something was published in it
            folder.rmdir()


@contextlib.contextmanager
def _staged(destination: Path) -> Iterator[Staging]:
    """Give a staging folder, and leave nothing of it behind."""
    made: list[Path] = []
    staging: Staging | None = None
    try:
        with _faults_told(destination), interrupts_held():
            _make_parents(destination.parent, made)
            staging = make_staging(destination)
        yield staging
    finally:
        with interrupts_held():
            _clear(staging, made)


@contextlib.contextmanager
def replacing(
    destination: str | Path, check: Callable[[Path], None], finish: Callable[[Path], object]
) -> Iterator[Path]:
    """Give a staging folder beside ``destination``, and move it there when the block ends well.

    Args:
        destination: Where the folder shall be. Missing folders above it are made.
        check: Refuses what is there and must stay; asked before the block, and once more after it.
        finish: Looks at the filled folder, and refuses what must not be published.

    Yields:
        The staging folder, empty.

    Raises:
        BundleError: if the destination cannot be written.
    """
    if not os.fspath(destination):
        raise BundleError("the destination is an empty name; name the folder to make.")
    destination = real_path(destination)  # the target of a link is replaced, not the link
    recover(destination)
    refuse_inside_a_bundle(destination)
    check(destination)
    sweep(destination)
    with _staged(destination) as staging:
        with _faults_told(destination, only_of_disks=True):
            yield staging.path
        with _faults_told(destination):
            finish(staging.path)
            _settle(staging)
            check(destination)
            with interrupts_held():
                _move_into_place(staging, destination)


@contextlib.contextmanager
def publishing(destination: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a staging folder beside ``destination``, and publish it as a bundle when the block ends well.

    Args:
        destination: Where the bundle shall be. Missing folders above it are made.
        overwrite: Whether a bundle that is there may be replaced; anything else is never replaced.

    Yields:
        The staging folder, empty. At the end of the block it must be sealed.

    Raises:
        BundleError: if the destination may not or cannot be written, or the staging folder is no bundle.
    """

    def check(path: Path) -> None:
        check_destination(path, overwrite=overwrite)

    with replacing(destination, check, lambda folder: open_bundle(folder, check_hashes=False)) as staging:
        yield staging
