"""What a bundle weighs: all of its files as they lie on the disk, the manifest included.

sum(file_sizes("my-gpt").values())
"""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.bundle._names import MANIFEST
from gpt_onnx.bundle._open import list_files


def file_sizes(folder: str | Path) -> dict[str, int]:
    """Return the bytes of each file of a bundle by its name.

    Raises:
        BundleError: if something in it is neither a plain file nor the folder of graphs.
        OSError: if it is no sealed bundle.
    """
    folder = Path(folder)
    return {**dict(list_files(folder)), MANIFEST: (folder / MANIFEST).stat().st_size}
