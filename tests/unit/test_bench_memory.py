"""What a step reads, and how fast the machine's memory can be read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.bundle import open_bundle
from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.eager import EagerGPT
from gpt_onnx.export import export_bundle
from gpt_onnx.model import GPT
from gpt_onnx.runtime.bench.bundle_contender import BundleContender
from gpt_onnx.runtime.bench.bundle_facts import mean_kl, step_traffic
from gpt_onnx.runtime.bench.environment import available_memory, cache_bytes
from gpt_onnx.runtime.bench.machine_memory import SMALLEST_BYTES, beyond_caches, nearest_size
from gpt_onnx.runtime.bench.memory_reader import COLUMNS, KERNELS, MemoryReader
from gpt_onnx.runtime.bench.plan import Point
from gpt_onnx.runtime.bench.traffic import step_bytes

SIZES: dict[str, Any] = {"vocab_size": 80, "context_length": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
BLOCKS = 2 * (4 * 16 * 16 + 2 * 4 * 16 * 16)  # of numbers in the products of two layers of width 16


@pytest.mark.parametrize(
    ("target", "tied", "position"),
    [("cpu", True, "learned"), ("cpu", False, "rotary"), ("portable", False, "sinusoidal")],
)
def test_a_step_reads_every_product_and_one_table(
    tmp_path: Path, target: str, tied: bool, position: str
) -> None:
    config = GPTConfig(**SIZES, position=position, tie_embeddings=tied, n_kv_head=2)
    gpt = GPT(config)
    write_checkpoint(tmp_path / "source", config, gpt.state_dict())
    export_bundle(tmp_path / "source", tmp_path / "bundle", target=target, check="none")
    found = step_traffic(open_bundle(tmp_path / "bundle"))
    products = 4 * (BLOCKS + 80 * 16)
    # Norms and biases come on top: less than ten vectors a layer. A second table would be 5120 bytes.
    assert products <= found["weight_bytes"] < products + 4 * 16 * 2 * 16
    assert found["cache_bytes_per_token"] == 4 * 2 * 2 * 16
    eager = EagerGPT(gpt).traffic
    assert products <= eager["weight_bytes"] < products + 4 * 16 * 2 * 16


def test_a_step_reads_the_weights_once_and_the_cache_of_every_sequence() -> None:
    point = Point(batch_size=3, prompt_tokens=100)
    assert step_bytes(1000, 10, point, 40) == 1000 + 10 * 3 * 120
    assert step_bytes(None, 10, point, 40) is None
    assert step_bytes(1000, None, point, 40) is None


@pytest.mark.parametrize("name", KERNELS)
def test_every_way_of_reading_takes_every_number_into_account(name: str) -> None:
    part = np.ones((3, COLUMNS), np.float32)
    before = np.sum(KERNELS[name](part))
    part[1, 7] = 500.0
    assert np.sum(KERNELS[name](part)) >= before + 499.0


def test_all_threads_together_read_so_many_bytes() -> None:
    reader = MemoryReader(threads=3)
    reader.start([[3 * 5 * COLUMNS * 4]], 0)
    assert [part.shape for part in reader._parts[3 * 5 * COLUMNS * 4]] == [(5, COLUMNS)] * 3
    assert reader.step([0]) == [0]
    assert set(reader.facts["details"]["kernels"].values()) <= set(KERNELS)


@given(st.floats(1, 1e12))
def test_a_step_is_compared_with_an_array_of_about_its_size(step: float) -> None:
    largest = 2**30
    size = nearest_size(step, largest)
    assert SMALLEST_BYTES <= size <= largest
    if SMALLEST_BYTES * 1.2 < step < largest / 1.2:
        assert 2**-0.26 <= size / step <= 2**0.26


def test_the_largest_array_is_larger_than_every_cache_and_fits() -> None:
    size, free = beyond_caches(), available_memory()
    assert free is None or size <= free / 3
    assert size >= min(4 * max(cache_bytes().values(), default=0), (free or 0) // 5)


def test_caches_are_those_of_data_in_bytes(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("3", "Unified", "9K")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert cache_bytes(tmp_path) == {"L1": 48 * 1024, "L3": 9 * 1024}
    assert cache_bytes(tmp_path / "missing") == {}


@pytest.mark.parametrize(
    ("precision", "measured", "kl"),
    [("int4", 0.03, 0.03), ("int4", None, None), ("fp32", None, 0.0)],
)
def test_quality_is_what_the_export_measured(
    monkeypatch: pytest.MonkeyPatch, precision: str, measured: float | None, kl: float | None
) -> None:
    found = None if measured is None else SimpleNamespace(kl_mean=measured)
    monkeypatch.setattr("gpt_onnx.runtime.bench.bundle_facts.read_quality", lambda bundle: found)
    bundle: Any = SimpleNamespace(manifest=SimpleNamespace(precision=precision))
    assert mean_kl(bundle) == kl


def test_the_bytes_of_a_bundle_are_those_of_all_its_files(tiny_bundle: Any) -> None:
    path = tiny_bundle().path
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert BundleContender(str(path), "cpu", 1).facts["file_bytes"] == size
