"""Open a bundle while its weights are still being hashed, on a thread of their own.

    with verifying("my-gpt") as bundle:
        check_graph(bundle)                 # the graph was hashed before it is parsed here
        session = make_session(bundle)      # maps the weights; nothing computed from them may leave the block
    session.run(...)                        # here every byte of the bundle is verified

The order of ``open_bundle`` holds for all that anything parses: the manifest, the listing, the sizes, then
the hashes of every file but those of weights. They have no format: they are bytes at offsets which the graph
names, and graph, offsets and sizes are verified when the block begins. To make a session, ONNX Runtime
copies, reorders and folds them: arithmetic, which damaged numbers pass through. So they are hashed
meanwhile, and leaving the block waits for it. A block that ends with an error ends with the damage instead,
if there is some.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpt_onnx._background import Background
from gpt_onnx.bundle._hashing import hash_file
from gpt_onnx.bundle._manifest import FileEntry
from gpt_onnx.bundle._open import Bundle, check_entry, open_bundle
from gpt_onnx.errors import BundleError

CHUNK_BYTES = 4 << 20
"""Larger than elsewhere: after each chunk the thread waits for Python's lock, up to 5 ms a time."""


def _start(bundle: Bundle, names: list[str]) -> Background[list[FileEntry]]:
    paths = [bundle.file(name) for name in names]
    return Background(lambda: [hash_file(path, chunk_bytes=CHUNK_BYTES) for path in paths])


def _check(bundle: Bundle, names: list[str], hashing: Background[list[FileEntry]]) -> None:
    try:
        for name, found in zip(names, hashing.result(), strict=True):
            check_entry(bundle.path / name, found, bundle.manifest.files[name])
    except BundleError:
        bundle.check_in_place()  # of another bundle that took this one's place, the hash is another
        raise


@contextmanager
def verifying(path: str | Path, *, check_hashes: bool = True) -> Iterator[Bundle]:
    """Verify a bundle, its weights while the block runs; see the module.

    Args:
        path: The folder.
        check_hashes: Whether to hash every file; the names and sizes are always checked.

    Raises:
        BundleError: as ``open_bundle`` does; for the weights, when the block ends.
    """
    bundle = open_bundle(path, check_hashes=check_hashes, hash_data=False)
    data = bundle.manifest.graph.data_files
    if not data or not check_hashes:
        yield bundle
        return
    hashing = _start(bundle, data)
    try:
        yield bundle
    except Exception:
        _check(bundle, data, hashing)
        raise
    _check(bundle, data, hashing)
