"""The memory of this process, from the operating system.

Resident means everything: interpreter, libraries, weights, cache, work space, and pages of files that are
mapped, such as weights. Nothing is subtracted.
"""

from __future__ import annotations

import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
UNITS = {"darwin": 1}  # bytes in a unit of ru_maxrss; 1024 elsewhere


def _from_status(field: str, status: Path = STATUS) -> int | None:
    """Return a field of Linux's status file in bytes."""
    try:
        text = status.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = [line.split() for line in text.splitlines() if line.startswith(f"{field}:")]
    return int(found[0][1]) * 1024 if found else None


def _from_usage() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    usage: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage * UNITS.get(sys.platform, 1024)


def resident_bytes() -> int | None:
    """Return the resident memory now; None where the system does not tell."""
    return _from_status("VmRSS")


def peak_resident_bytes() -> int | None:
    """Return the most resident memory so far; None where the system does not tell.

    Linux counts from the start of the program (VmHWM); ru_maxrss, which a child inherits from its parent, is
    asked elsewhere only.
    """
    peak = _from_status("VmHWM")
    return _from_usage() if peak is None else peak
