"""Files of checkpoints: whether somebody else's is a link out of its folder, and writing one in pieces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpt_onnx._paths import real_path


def leads_out(path: Path) -> bool:
    """Whether a file is a link to somewhere else than its folder or the blobs of Hugging Face's own cache."""
    target, folder = real_path(path), real_path(path.parent)
    blobs = [above.parent / "blobs" for above in folder.parents if above.name == "snapshots"]
    return target.parent not in (folder, *blobs)


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write byte strings one after another, so that no copy of all of them is ever made."""
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
