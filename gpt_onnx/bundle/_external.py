"""Whether the weights that graphs keep outside fill the data files exactly: nothing twice, nothing left over.

Two graphs may share a weight; within one graph each has bytes of its own. Between two weights there may be
zeros, fewer than ALIGNMENT_BYTES, so that large ones can be mapped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from gpt_onnx.bundle._hashing import open_regular
from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._summary import GraphSummary
from gpt_onnx.errors import BundleError

ALIGNMENT_BYTES = 1 << 16
Region = tuple[int, int]
"""First byte, and the byte after the last."""
Regions = Mapping[str, set[Region]]
"""Path of a data file to its parts."""


def regions_of(summary: GraphSummary, manifest: Manifest, graph_path: str) -> Regions:
    """Return the parts of each data file that a graph's weights take.

    Raises:
        BundleError: if a weight is in another file, is empty, or shares its bytes with another one.
    """
    folder, slash, _ = graph_path.rpartition("/")
    files: dict[str, set[Region]] = {path: set() for path in manifest.graph.data_files}
    for weight in summary.initializers:
        if weight.external is None:
            continue
        regions = files.get(f"{folder}{slash}{weight.external.location}")
        if regions is None:
            told = " and ".join(files) or None
            raise BundleError(
                f"weight {shorten(weight.name)} is in {shorten(weight.external.location)}; the manifest says "
                f"{told}."
            )
        region = (weight.external.offset, weight.external.offset + weight.external.length)
        if region[0] == region[1] or region in regions:
            raise BundleError(f"weight {shorten(weight.name)} is empty or has the same bytes as another one.")
        regions.add(region)
    return files


def _check_gap(file: BinaryIO, start: int, stop: int) -> None:
    if stop < start:
        raise BundleError(f"two weights share the bytes {stop} to {start}; each has its own.")
    if stop - start >= ALIGNMENT_BYTES:
        raise BundleError(
            f"the bytes {start} to {stop} belong to no weight; fewer than {ALIGNMENT_BYTES} may."
        )
    file.seek(start)
    if any(file.read(stop - start)):
        raise BundleError(f"the bytes {start} to {stop} belong to no weight and are not zero.")


def _check_filled(file: BinaryIO, regions: Iterable[Region]) -> None:
    size, position = os.fstat(file.fileno()).st_size, 0
    for start, stop in sorted(regions):
        if stop > size:
            raise BundleError(f"a weight ends at byte {stop}; the file has {size}.")
        _check_gap(file, position, start)
        position = stop
    if position != size:
        raise BundleError(f"its last {size - position} bytes belong to no weight.")


def check_coverage(regions: Iterable[Region], data: Path) -> None:
    """Check that the regions fill ``data`` in order, up to its last byte.

    Raises:
        BundleError: if two overlap, or bytes are left over that alignment does not explain.
    """
    with open(open_regular(data), "rb", buffering=0) as file:
        try:
            _check_filled(file, regions)
        except BundleError as exc:
            raise BundleError(f"{data} does not fit its graphs: {exc}") from exc
