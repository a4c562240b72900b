"""Files of ``torch.save`` before PyTorch 1.6: five pickles one after another, then the storages.

They are read by the same machine as the zip archives are, twice: the place of a storage is known only when
all that are named before it are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from gpt_onnx.checkpoint.archive_machine import PickleFault
from gpt_onnx.checkpoint.archive_pickle import MAX_INSTRUCTIONS, read_pickle
from gpt_onnx.checkpoint.archive_tensors import TensorBuilder
from gpt_onnx.checkpoint.archive_zip import Extent

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle: a number that stands for the format."""
PROTOCOL = 1001
MOST = MAX_INSTRUCTIONS // 4  # for each pickle, as one of them is read twice
COUNT_BYTES = 8  # before each storage stands its number of elements


def is_legacy(path: Path) -> bool:
    """Whether a file begins as an old file of torch.save does; never raises."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _extents(
    file: BinaryIO, start: int, keys: object, sizes: Mapping[str, tuple[int, int]]
) -> dict[str, Extent]:
    """Find the storages, which stand in the order of their keys, each behind its count."""
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise PickleFault("has no list of its storages")
    if len(set(keys)) != len(keys) or set(keys) != set(sizes):
        raise PickleFault("has a list of storages that are not those of its tensors")
    end, found = file.seek(0, 2), {}
    for key in keys:
        count, item_size = sizes[key]
        file.seek(start)
        if (stored := int.from_bytes(file.read(COUNT_BYTES), "little")) != count:
            raise PickleFault(f"has {stored} elements in the storage {key!r}, whose tensors need {count}")
        found[key] = Extent(start=start + COUNT_BYTES, size=count * item_size)
        start += COUNT_BYTES + count * item_size
        if start > end:
            raise PickleFault(f"is truncated: a storage ends at byte {start} and the file at {end}")
    return found


def read_legacy(file: BinaryIO, limit: int) -> object:
    """Read what an old file holds; its pickles are among its first ``limit`` bytes.

    Raises:
        PickleFault: if it is damaged or cannot be understood.
    """
    file.seek(0)
    data, sizes = file.read(limit), dict[str, tuple[int, int]]()

    def note(key: str, *size: int) -> None:
        if sizes.setdefault(key, (size[0], size[1])) != size:
            raise PickleFault(f"describes the storage {key!r} in two ways")

    first, read = TensorBuilder(note), partial(read_pickle, data, most=MOST)
    protocol, place = read(first, len(MAGIC))
    system, start = read(first, place)
    if protocol != PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
        raise PickleFault("was written on another kind of machine, or by another program than PyTorch")
    _, place = read(first, start)
    keys, place = read(first, place)
    extents = _extents(file, place, keys, sizes)
    return read(TensorBuilder(lambda key, *_: extents[key]), start)[0]
