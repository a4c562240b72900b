"""Several files of tensors with an index, as Hugging Face writes large models.

    model.safetensors.index.json     {"metadata": {...}, "weight_map": {tensor: file}}
    model-00001-of-00002.safetensors, model-00002-of-00002.safetensors

The index is held against the shards in both directions. A shard is a bare file name in the index's folder; a
link may lead out of it to the blobs of Hugging Face's own cache alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.files import leads_out
from gpt_onnx.checkpoint.store import Store, Stored
from gpt_onnx.errors import CheckpointError

MAX_INDEX_BYTES = 64_000_000
MAX_SHARDS = 10_000
MAX_NAME = 255  # characters, as file systems have it
REMEDY = "fetch the folder again, whole"


class Shard(Store, Protocol):
    """A store that knows what else lies in its file."""

    @property
    def others(self) -> Mapping[str, Stored]:
        """Return every tensor that is no weight, such as a mask."""
        ...


OpenShard = Callable[[Path], Shard]


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name occurs twice")
    return names


def _read_index(path: Path) -> dict[str, str]:
    """Return the name of each tensor's file."""
    try:
        if (size := path.stat().st_size) > MAX_INDEX_BYTES:
            raise CheckpointError(f"{path} has {size} bytes; an index has at most {MAX_INDEX_BYTES}.")
        values = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_duplicates)
    except (OSError, ValueError, RecursionError) as exc:
        raise CheckpointError(f"{path} could not be read as JSON: {exc}.") from exc
    places = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{path} has no weight_map from tensors to file names; {REMEDY}.")
    return places


def checked_file(index: Path, name: str) -> Path:
    """Return the file of a name in an index, which must be a plain name of a file in the same folder.

    Raises:
        CheckpointError: if the name has a folder in it, or the file is missing or a link that leads out.
    """
    if not name or len(name) > MAX_NAME or name.startswith(".") or any(sign in name for sign in "/\\:\0"):
        raise CheckpointError(
            f"{index} names the file {name[:80]!r}; a shard is a plain file name in the same folder."
        )
    path = index.with_name(name)
    if not path.is_file():
        raise CheckpointError(f"{index} names the shard {name}, which is missing; {REMEDY}.")
    if leads_out(path):
        raise CheckpointError(f"{path} is a link that leads out of the folder; put the file itself there.")
    return path


def _check_shard(index: Path, shard: Shard, places: Mapping[str, str], held: Mapping[str, str]) -> None:
    """See that a shard holds what the index says, and nothing else."""
    name = shard.path.name
    for tensor in _names(shard):
        if tensor in held:
            raise CheckpointError(f"{index}: {tensor} is in two shards, {held[tensor]} and {name}; {REMEDY}.")
        if tensor not in places:
            raise CheckpointError(f"{index} does not name {tensor}, which is in {name}; {REMEDY}.")


def _names(shard: Shard) -> Collection[str]:
    return [*shard.tensors, *shard.others]


class ShardedStore:
    """See Store.

    Args:
        index: The index file.
        open_shard: Opens one shard.

    Raises:
        CheckpointError: if index and shards disagree, or a name in the index is no plain file name.
    """

    def __init__(self, index: Path, open_shard: OpenShard) -> None:
        places = _read_index(index)
        names = sorted(set(places.values()))
        if not 1 <= len(names) <= MAX_SHARDS:
            raise CheckpointError(f"{index} names {len(names)} shards; there are from 1 to {MAX_SHARDS}.")
        paths = [checked_file(index, name) for name in names]
        self.path = index
        self.files = (index, *paths)
        self._shards = {path.name: open_shard(path) for path in paths}
        self._held = self._checked(places)
        shards = self._shards.values()
        self.tensors: Mapping[str, Stored] = {k: v for shard in shards for k, v in shard.tensors.items()}
        self.others: Mapping[str, Stored] = {k: v for shard in shards for k, v in shard.others.items()}

    def _checked(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the shard that holds each tensor; it must be the one that the index says."""
        held: dict[str, str] = {}
        for name, shard in self._shards.items():
            _check_shard(self.path, shard, places, held)
            held.update(dict.fromkeys(_names(shard), name))
        for tensor, name in places.items():
            if held.get(tensor) != name:
                found = f"it is in {held[tensor]}" if tensor in held else "no shard holds it"
                raise CheckpointError(f"{self.path} says that {tensor} is in {name}, and {found}; {REMEDY}.")
        return held

    def read(self, name: str) -> NDArray[np.floating[Any]]:
        """See Store."""
        return self._shards[self._held[name]].read(name)
