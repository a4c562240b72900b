"""Write the manifest of a finished folder: the last file of a bundle."""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.bundle._codec import MAX_MANIFEST_BYTES, encode_manifest
from gpt_onnx.bundle._hashing import hash_file
from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import MANIFEST
from gpt_onnx.bundle._open import list_files
from gpt_onnx.errors import BundleError


def seal(folder: str | Path, manifest: Manifest) -> Manifest:
    """Hash every file of ``folder`` and write ``manifest.json`` into it.

    Args:
        folder: Holds all the files of the bundle; an older manifest in it is replaced.
        manifest: What the bundle says of itself; its ``files`` are ignored.

    Returns:
        The manifest with its files. Its bytes depend on nothing but its values and theirs.

    Raises:
        BundleError: if a file has a name that no bundle may have, is a link, or is named and not there.
    """
    folder = Path(folder)
    names = sorted(name for name, _ in list_files(folder))
    if not names:
        raise BundleError(f"{folder} has no files; a bundle has at least a graph.")
    sealed = manifest.replace(files={name: hash_file(folder / name) for name in names})
    content = encode_manifest(sealed)
    if len(content) > MAX_MANIFEST_BYTES:
        raise BundleError(f"the manifest would have {len(content)} bytes; the limit is {MAX_MANIFEST_BYTES}.")
    (folder / MANIFEST).write_bytes(content)
    return sealed
