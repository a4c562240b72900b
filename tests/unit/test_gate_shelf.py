"""Large arrays wait in a file and come back as they were."""

from __future__ import annotations

import gc
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.export.gate import shelf as module
from gpt_onnx.export.gate.shelf import Shelf, Shelved


@pytest.fixture(autouse=True)
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE", 1000)


def drawn(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 3, 8))


def test_small_arrays_stay_in_memory() -> None:
    array = drawn(2, 0)
    assert Shelf().put(array) is array


def test_large_arrays_come_back_bit_for_bit_in_any_order() -> None:
    shelf, arrays = Shelf(), [drawn(50 + index, index) for index in range(4)]
    arrays[2] = arrays[2].transpose(0, 2, 1)  # not as it lies in memory
    rows = [shelf.put(array) for array in arrays]
    assert all(isinstance(row, Shelved) for row in rows)
    for index in (3, 0, 2, 1, 0):
        assert rows[index][:].tobytes() == np.ascontiguousarray(arrays[index]).tobytes()
        assert rows[index][:7].tobytes() == np.ascontiguousarray(arrays[index][:7]).tobytes()
        assert rows[index][:1000].shape == arrays[index].shape


def test_the_file_is_gone_with_the_last_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    make = tempfile.TemporaryFile

    def made(**options: Any) -> Any:
        opened.append(make(dir=tmp_path, **options))
        return opened[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", made)
    row = Shelf().put(drawn(50, 0))
    assert row[:2].shape == (2, 3, 8)
    assert not opened[0].closed
    del row
    gc.collect()
    assert opened[0].closed
    assert not list(tmp_path.iterdir())


def test_a_disk_that_takes_a_part_leaves_the_array_in_memory() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    array = drawn(50, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (array.nbytes - 100, limits[1]))
    try:
        assert Shelf().put(array) is array
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_arrays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**options: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    array = drawn(50, 0)
    assert Shelf().put(array) is array
