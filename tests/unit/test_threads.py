"""The cores that a process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from gpt_onnx.errors import InputError
from gpt_onnx.runtime import _threads
from gpt_onnx.runtime._threads import (
    available_threads,
    cgroup_cores,
    distinct_cores,
    most_threads,
    thread_count,
)


def hierarchy(root: Path, files: dict[str, str], membership: str = "0::/") -> float:
    for name, content in files.items():
        (root / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "fs" / name).write_text(content)
    (root / "membership").write_text(membership)
    return cgroup_cores(root / "fs", root / "membership")


@pytest.mark.parametrize(
    ("files", "membership", "cores"),
    [
        ({}, "0::/", math.inf),
        ({"cpu.max": "max 100000\n"}, "0::/", math.inf),
        ({"cpu.max": "150000 100000\n"}, "0::/", 1.5),
        ({"cpu.max": "garbage"}, "0::/", math.inf),
        ({"cpu.max": "5 0"}, "0::/", math.inf),
        ({"cpu.max": "400000 100000", "a/b/cpu.max": "200000 100000"}, "0::/a/b", 2.0),
        ({"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 1.0),
        ({"other/cpu.max": "100000 100000"}, "0::/a/b", math.inf),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu:/", math.inf),
        (
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "50000", "cpu,cpuacct/x/cpu.cfs_period_us": "100000"},
            "3:cpu,cpuacct:/x\n2:memory:/y",
            0.5,
        ),
    ],
)
def test_the_tightest_quota_of_the_group_and_its_ancestors_counts(
    tmp_path: Path, files: dict[str, str], membership: str, cores: float
) -> None:
    assert hierarchy(tmp_path, files, membership) == cores


@pytest.mark.parametrize(("quota", "threads"), [(math.inf, 4), (1.5, 2), (0.2, 1), (9, 4)])
def test_threads_are_the_affinity_cut_by_the_quota(
    monkeypatch: pytest.MonkeyPatch, quota: float, threads: int
) -> None:
    monkeypatch.setattr(_threads, "cgroup_cores", lambda: quota)
    monkeypatch.setattr(_threads, "_affinity_cores", lambda: 4)
    assert available_threads() == threads


@pytest.mark.parametrize(
    ("siblings", "cpus", "cores"),
    [
        (["0-1", "0-1", "2-3", "2-3"], {0, 1, 2, 3}, 2),
        (["0,4", "1,5", "0,4", "1,5"], {0, 1, 2, 3}, 2),
        (["0-1", "0-1", "2-3", "2-3"], {1, 2}, 2),
        (["0-1", "0-1", "2-3", "2-3"], {2, 3}, 1),
        (["0", "1"], {0, 1}, 2),
        ([], {0, 1, 2}, 3),
    ],
)
def test_two_hardware_threads_of_a_core_count_as_one(
    tmp_path: Path, siblings: list[str], cpus: set[int], cores: int
) -> None:
    for cpu, value in enumerate(siblings):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{value}\n")
    assert distinct_cores(cpus, tmp_path) == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_process_tied_to_one_core_gets_one_thread() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert available_threads() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(("cores", "most"), [(1, 64), (2, 64), (16, 64), (17, 68), (192, 768), (None, 64)])
def test_as_many_threads_as_a_machine_may_need_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, most: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert thread_count(most) == most_threads() == most
    with pytest.raises(InputError, match=f"threads is {most + 1}; it must be an integer from 1 to {most}"):
        thread_count(most + 1)


def test_no_number_of_threads_means_the_cores_that_may_be_used() -> None:
    assert thread_count(None) == available_threads()
