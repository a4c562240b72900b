"""Open a bundle: verify everything that its manifest promises before any other file is parsed.

    >>> bundle = open_bundle("my-gpt")          # doctest: +SKIP
    >>> bundle.graph_path("model")              # doctest: +SKIP
    PosixPath('my-gpt/onnx/model.onnx')

The order is: the manifest alone; the folder holds exactly the files that it lists, all plain; their sizes;
their hashes. Refused: links, pipes, missing, unlisted and oversized files, a newer format.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx.bundle._codec import MAX_MANIFEST_BYTES, decode_manifest
from gpt_onnx.bundle._hashing import Progress, hash_file, read_bounded
from gpt_onnx.bundle._manifest import FileEntry, Manifest
from gpt_onnx.bundle._names import GRAPH_FOLDER, MANIFEST, shorten
from gpt_onnx.errors import BundleError

_ATTEMPTS = 5


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return device and inode; None where there is nothing."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle whose files were verified."""

    path: Path
    """The folder."""
    manifest: Manifest
    """What it says of itself."""
    identity: tuple[int, int] | None = None
    """Device and inode of the folder that was verified."""

    def file(self, relative: str) -> Path:
        """Return the path of one of its files, e.g. ``file("tokenizer.json")``.

        Raises:
            BundleError: if the manifest does not list it.
        """
        if relative != MANIFEST and relative not in self.manifest.files:
            raise BundleError(
                f"{self.path} has no {relative}; it has {', '.join(sorted(self.manifest.files))}."
            )
        return self.path / relative

    def graph_path(self, role: str = "model") -> Path:
        """Return the path of a graph: "model", or "prefill" and "decode" in static layouts.

        Raises:
            BundleError: if the layout has no such graph.
        """
        graph = self.manifest.graph
        if role not in graph.graphs:
            raise BundleError(
                f"{self.path} has no graph {role!r}; layout {graph.layout} has {', '.join(graph.graphs)}."
            )
        return self.path / graph.graphs[role]

    def check_in_place(self) -> None:
        """Check that the folder is the one that was verified; ask after the last file was opened.

        Raises:
            BundleError: if another bundle was published in its place meanwhile.
        """
        if self.identity is not None and _identity(self.path) != self.identity:
            raise BundleError(f"{self.path} was replaced while it was being loaded; load it again.")


def list_files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the relative name and the size of each file but the manifest, in no order.

    Raises:
        BundleError: if something is neither a plain file nor the folder of graphs.
    """
    for inside, prefix in ((folder, ""), (folder / GRAPH_FOLDER, f"{GRAPH_FOLDER}/")):
        if prefix and not inside.is_dir():
            continue
        with os.scandir(inside) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if not prefix and entry.name == GRAPH_FOLDER and stat.S_ISDIR(status.st_mode):
                    continue
                if not stat.S_ISREG(status.st_mode):
                    kind = "a link" if stat.S_ISLNK(status.st_mode) else "no plain file"
                    raise BundleError(f"{folder} holds {shorten(prefix + entry.name)}, {kind}; remove it.")
                if prefix or entry.name != MANIFEST:
                    yield prefix + entry.name, status.st_size


def _verify_listing(folder: Path, manifest: Manifest) -> None:
    """Check that the folder holds exactly the listed files, with their sizes."""
    found = set()
    for name, size in list_files(folder):
        entry = manifest.files.get(name)
        if entry is None:
            raise BundleError(f"{folder} holds {shorten(name)}, which its manifest does not list; remove it.")
        if size != entry.size:
            raise BundleError(
                f"{folder / name} has {size} bytes and its manifest says {entry.size}; copy it again."
            )
        found.add(name)
    if missing := sorted(set(manifest.files) - found):
        raise BundleError(f"{folder} lacks {missing[0]}, which its manifest lists; copy it again.")


def check_entry(path: Path, found: FileEntry, promised: FileEntry) -> None:
    """Compare what a file is with what the manifest says of it.

    Raises:
        BundleError: if they differ.
    """
    if found != promised:
        raise BundleError(f"{path} is damaged: its SHA-256 is not the manifest's; copy it again.")


def _verify_hashes(folder: Path, manifest: Manifest, progress: Progress | None, hash_data: bool) -> None:
    for name, entry in manifest.files.items():
        if hash_data or name not in manifest.graph.data_files:
            check_entry(folder / name, hash_file(folder / name, progress), entry)


def _no_bundle(folder: Path) -> BundleError:
    from gpt_onnx.bundle._mistaken import no_bundle  # here, as it is seldom needed

    return BundleError(no_bundle(folder))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder, and nothing else.

    Raises:
        BundleError: if it is missing or not a manifest.
    """
    path = folder / MANIFEST
    if not path.exists() and not path.is_symlink():
        raise _no_bundle(folder)
    content = read_bounded(path, MAX_MANIFEST_BYTES)
    try:
        return decode_manifest(content)
    except BundleError as exc:
        raise BundleError(f"{path} is no manifest: {exc}") from exc


def _recover(folder: Path) -> None:
    """Undo a publication that died between two renames: then there is nothing where the bundle was."""
    if not os.path.lexists(folder):
        from gpt_onnx.bundle._staging import recover  # brings what writes bundles, which few who read need

        recover(folder)


def _verified(folder: Path, check_hashes: bool, progress: Progress | None, hash_data: bool) -> Manifest:
    if not folder.is_dir():
        raise _no_bundle(folder)
    manifest = read_manifest(folder)
    try:
        _verify_listing(folder, manifest)
    except OSError as exc:
        raise BundleError(f"{exc.filename or folder} cannot be read: {exc.strerror}.") from exc
    if check_hashes:
        _verify_hashes(folder, manifest, progress, hash_data)
    return manifest


def open_bundle(
    path: str | Path,
    *,
    check_hashes: bool = True,
    progress: Progress | None = None,
    hash_data: bool = True,
) -> Bundle:
    """Verify a bundle and return it.

    A publication that died between two renames is undone first. A bundle that is replaced during the
    verification is verified anew.

    Args:
        path: The folder.
        check_hashes: Whether to hash every file; the names and sizes are always checked.
        progress: Called with the number of bytes just hashed.
        hash_data: False: leave out the files of weights, for a caller that hashes them itself.

    Raises:
        BundleError: if anything is not as the manifest says; the message names the file.
    """
    folder = Path(path)
    for _ in range(_ATTEMPTS):
        _recover(folder)
        identity = _identity(folder)
        try:
            manifest = _verified(folder, check_hashes, progress, hash_data)
        except BundleError:
            if _identity(folder) == identity:
                raise
        else:
            if _identity(folder) == identity:
                return Bundle(path=folder, manifest=manifest, identity=identity)
    raise BundleError(
        f"{folder} was replaced {_ATTEMPTS} times while it was being verified; try again later."
    )
