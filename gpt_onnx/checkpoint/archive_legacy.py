"""Files of ``torch.save`` before PyTorch 1.6: five pickles one after another, then the storages.

They are read by the same machine as the zip archives are, twice: the place of a storage is known only when
all that are named before it are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from gpt_onnx.checkpoint.archive_pickle import Machine, PickleFault
from gpt_onnx.checkpoint.archive_tensors import TensorBuilder
from gpt_onnx.checkpoint.archive_zip import Extent

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle: a number that stands for the format."""
PROTOCOL = 1001
COUNT_BYTES = 8  # before each storage stands its number of elements


def is_legacy(path: Path) -> bool:
    """Whether a file begins as an old file of torch.save does; never raises."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _extents(file: BinaryIO, start: int, keys: object, sizes: Mapping[str, int]) -> dict[str, Extent]:
    """Find the storages, which stand in the order of their keys."""
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise PickleFault("has no list of its storages")
    if len(set(keys)) != len(keys) or set(keys) != set(sizes):
        raise PickleFault("has a list of storages that are not those of its tensors")
    end, found = file.seek(0, 2), {}
    for key in keys:
        found[key] = Extent(start=start + COUNT_BYTES, size=sizes[key])
        start += COUNT_BYTES + sizes[key]
        if start > end:
            raise PickleFault(f"is truncated: a storage ends at byte {start} and the file at {end}")
    return found


def read_legacy(file: BinaryIO, limit: int) -> object:
    """Read what an old file holds; its pickles are among its first ``limit`` bytes.

    Raises:
        PickleFault: if it is damaged or cannot be understood.
    """
    file.seek(0)
    data, sizes = file.read(limit), dict[str, int]()

    def note(key: str, size: int) -> None:
        if sizes.setdefault(key, size) != size:
            raise PickleFault(f"describes the storage {key!r} in two ways")

    machine = Machine(data, TensorBuilder(note))
    machine.place = len(MAGIC)
    protocol, system = machine.run(), machine.run()
    if protocol != PROTOCOL or not isinstance(system, dict) or system.get("little_endian") is not True:
        raise PickleFault("was written on another kind of machine, or by another program than PyTorch")
    start = machine.place
    machine.run()
    keys = machine.run()
    extents = _extents(file, machine.place, keys, sizes)
    again = Machine(data, TensorBuilder(lambda key, size: extents[key]))
    again.place = start
    return again.run()
