"""How many cores this process may really use: its affinity, cut by the quota of its control group.

    >>> available_threads() >= 1
    True

ONNX Runtime's own default is the host's core count, which in a container is far too many. Two hardware
threads of one core count as one: they share its arithmetic units and its bandwidth, which a product uses up
alone, and one that spins takes time from the other.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from ._arguments import as_integer

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
CPUS = Path("/sys/devices/system/cpu")
THREADS_PER_CORE = 4  # more only wait for each other
THREADS_ANYWHERE = 64  # may be asked for on any machine


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _groups(membership: str) -> Iterator[PurePosixPath]:
    """Yield this process's group and each of its ancestors, relative to the root of its hierarchy."""
    for line in membership.splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "" or "cpu" in controllers.split(","):
            group = PurePosixPath(path.lstrip("/"))
            yield from (group, *group.parents)


def _ratio(quota: str, period: str) -> float:
    """Return quota / period in cores; infinite where there is no quota ("max", "-1" or nothing)."""
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return math.inf
    return int(quota) / int(period)


def _quota_of(folder: Path) -> float:
    """Return the cores that one control group grants, version 2 or version 1."""
    quota, period = [*_read(folder / "cpu.max").split(), "", ""][:2]
    older = _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))
    return min(_ratio(quota, period), older)


def cgroup_cores(root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> float:
    """Return the cores that the control groups grant this process; infinite where they set no limit."""
    groups = {PurePosixPath("."), *_groups(_read(membership))}
    folders = {base / group for base in (root, root / "cpu", root / "cpu,cpuacct") for group in groups}
    return min((_quota_of(folder) for folder in folders), default=math.inf)


def distinct_cores(cpus: Iterable[int], root: Path = CPUS) -> int:
    """Return how many cores some hardware threads are on; each on its own where the system does not tell."""
    return len({_read(root / f"cpu{cpu}/topology/thread_siblings_list") or f"cpu{cpu}" for cpu in cpus})


def _affinity_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Linux
        return distinct_cores(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_threads() -> int:
    """Return the number of cores that this process may use, at least 1; part of a core counts as one."""
    return int(max(1, min(_affinity_cores(), math.ceil(min(cgroup_cores(), 2**16)))))


def most_threads() -> int:
    """Return how many threads may be asked for: with thousands ONNX Runtime hangs, or cannot start them."""
    return max(THREADS_PER_CORE * (os.cpu_count() or 1), THREADS_ANYWHERE)


def thread_count(threads: int | None) -> int:
    """Return the number of threads that an argument ``threads`` means; None: the cores that may be used.

    Raises:
        InputError: if it is no integer from 1 to ``most_threads``.
    """
    if threads is None:
        return available_threads()
    return as_integer("threads", threads, least=1, most=most_threads())
