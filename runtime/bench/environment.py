"""The machine and the software that a measurement is valid for."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx import __version__
from gpt_onnx.runtime._threads import available_threads, cgroup_cores

CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
FLAGS = (
    *("avx", "avx2", "fma", "f16c", "avx_vnni", "avx_vnni_int8", "avx512f", "avx512bw", "avx512_vnni"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),  # x86; then Arm
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme"),
)
"""Features of a processor that kernels of matrix products are written for."""

BUSY = 0.75  # processes that want to run, a core: with more of them, contenders wait for their turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a measurement was made."""

    cpu: str
    """The processor's name."""
    cpu_flags: tuple[str, ...]
    """Those of FLAGS that it has."""
    host_cores: int
    """Logical cores of the machine."""
    usable_cores: int
    """Those that this process may use: its affinity, cut by the quota of its control group."""
    quota_cores: float | None
    """The quota alone; None where there is none."""
    cache_bytes: Mapping[str, int]
    """Processor cache, such as L2 and L3, to its size; several cores, and other machines, may share it."""
    threads: int
    """Threads within an operator, the same for every contender."""
    load_average: float | None
    """Processes that wanted to run in the last minute before the measurement; None where unknown."""
    system: str
    """Operating system and architecture."""
    python: str
    versions: Mapping[str, str]
    """Of the packages that computed."""

    @property
    def notes(self) -> list[str]:
        """Return a sentence if other programs kept the machine busy before the measurement."""
        if self.load_average is None or self.load_average <= BUSY * self.usable_cores:
            return []
        return [
            f"the machine was busy (load average {self.load_average:.1f} on {self.usable_cores} cores): "
            "times mean little, and ratios less than on a quiet machine"
        ]


def _cpuinfo(path: Path) -> dict[str, str]:
    """Return the fields of the first processor."""
    try:
        first = path.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0]
    except OSError:
        return {}
    fields = (line.partition(":") for line in first.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in fields}


def cpu_facts(path: Path = CPUINFO) -> tuple[str, tuple[str, ...]]:
    """Return the processor's name, and the flags of interest that it has (Linux; elsewhere none)."""
    fields = _cpuinfo(path)
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return name, tuple(flag for flag in FLAGS if flag in flags)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def cache_bytes(folder: Path = CACHES) -> dict[str, int]:
    """Return the sizes of the first core's caches of data (Linux; elsewhere none)."""
    indices = sorted(folder.glob("index*")) if folder.is_dir() else []
    levels = {
        f"L{_read(index / 'level')}": _read(index / "size")
        for index in indices
        if _read(index / "type") in ("Data", "Unified")
    }
    return {level: int(size[:-1]) * 1024 for level, size in levels.items() if re.fullmatch("[0-9]+K", size)}


def available_memory(path: Path = MEMINFO) -> int | None:
    """Return the bytes that programs can still take; None where the system does not tell."""
    found = re.search(r"^MemAvailable: *([0-9]+) kB$", _read(path), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def describe(threads: int) -> Environment:
    """Return what is known of this machine; the versions are those of gpt-onnx alone."""
    name, flags = cpu_facts()
    quota = cgroup_cores()
    return Environment(
        cpu=name,
        cpu_flags=flags,
        host_cores=os.cpu_count() or 1,
        usable_cores=available_threads(),
        quota_cores=quota if quota < 2**16 else None,
        cache_bytes=cache_bytes(),
        threads=threads,
        load_average=_load_average(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        versions={"gpt-onnx": __version__},
    )
