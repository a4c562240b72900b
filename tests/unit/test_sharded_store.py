"""Shards with an index: what belongs together is read, and what contradicts is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from gpt_onnx.checkpoint.safetensors_store import SafetensorsStore
from gpt_onnx.checkpoint.sharded_store import ShardedStore
from gpt_onnx.errors import CheckpointError

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
PLACES = {"a": FIRST, "mask": FIRST, "b": SECOND}


def ones(*names: str) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.ones((2, 3), np.float32) for name in names}


def write_index(folder: Path, places: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file({"a": np.arange(6, dtype=np.float16).reshape(2, 3), "mask": np.ones(4, bool)}, tmp_path / FIRST)
    save_file(ones("b"), tmp_path / SECOND)
    write_index(tmp_path, PLACES)
    return tmp_path


def opened(folder: Path) -> ShardedStore:
    return ShardedStore(folder / INDEX, lambda path: SafetensorsStore(path, floats_only=False))


def test_tensors_of_all_shards_are_read(folder: Path) -> None:
    store = opened(folder)
    assert {name: info.shape for name, info in store.tensors.items()} == {"a": (2, 3), "b": (2, 3)}
    assert np.array_equal(store.read("a"), np.arange(6).reshape(2, 3))
    assert store.read("a").dtype == np.float16
    assert np.array_equal(store.read("b"), np.ones((2, 3)))


def test_what_is_no_weight_is_listed_apart(folder: Path) -> None:
    assert list(opened(folder).others) == ["mask"]


def test_every_file_counts_for_the_hash(folder: Path) -> None:
    assert [path.name for path in opened(folder).files] == [INDEX, FIRST, SECOND]


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing shard": (lambda folder: (folder / SECOND).unlink(), f"the shard {SECOND}, which is missing"),
    "parent folder": (lambda folder: write_index(folder, PLACES | {"b": "../x.safetensors"}), "plain file"),
    "absolute": (lambda folder: write_index(folder, PLACES | {"b": "/etc/passwd"}), "'/etc/passwd'; a shard"),
    "windows": (lambda folder: write_index(folder, PLACES | {"b": "C:\\x"}), "plain file name"),
    "hidden": (lambda folder: write_index(folder, PLACES | {"b": ".."}), "'..'; a shard is a plain"),
    "empty": (lambda folder: write_index(folder, PLACES | {"b": ""}), "''; a shard is a plain file name"),
    "long": (lambda folder: write_index(folder, PLACES | {"b": "a" * 5000}), "plain file name"),
    "no shard holds": (lambda folder: write_index(folder, PLACES | {"c": FIRST}), "c is in .*, and no shard"),
    "other shard": (lambda folder: write_index(folder, PLACES | {"b": FIRST, "a": SECOND}), "and it is in"),
    "not named": (lambda folder: write_index(folder, {"a": FIRST, "b": SECOND}), "does not name mask"),
    "in two": (lambda folder: save_file(ones("a", "b"), folder / SECOND), "a is in two shards"),
    "no map": (lambda folder: (folder / INDEX).write_text("{}"), "no weight_map"),
    "no names": (lambda folder: write_index(folder, {"a": 1}), "no weight_map"),
    "no shards": (lambda folder: write_index(folder, {}), "names 0 shards"),
    "not json": (lambda folder: (folder / INDEX).write_text("{"), "as JSON"),
    "twice": (
        lambda folder: (folder / INDEX).write_text(f'{{"weight_map": {{"a": "{FIRST}", "a": "{SECOND}"}}}}'),
        "a name occurs twice",
    ),
    "a list": (lambda folder: (folder / INDEX).write_text("[]"), "no weight_map"),
    "truncated shard": (lambda folder: (folder / SECOND).write_bytes(b"\0" * 4), "truncated"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_contradictions_are_refused_by_name(folder: Path, fault: str) -> None:
    spoil, message = FAULTS[fault]
    spoil(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        opened(folder)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = (folder / SECOND).rename(tmp_path_factory.mktemp("elsewhere") / SECOND)
    (folder / SECOND).symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="a link that leads out of the folder"):
        opened(folder)


def test_links_of_the_cache_of_hugging_face_are_followed(folder: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--x" / "blobs", tmp_path / "models--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name in (FIRST, SECOND, INDEX):
        (folder / name).rename(blobs / name.upper())
        (snapshot / name).symlink_to(Path("../../blobs") / name.upper())
    assert sorted(opened(snapshot).tensors) == ["a", "b"]
