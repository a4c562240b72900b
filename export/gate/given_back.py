"""Memory that was freed and is still the process's: glibc keeps it for what is allocated next.

A reference's pass leaves half a gigabyte of it behind in pieces, which the session of a large graph, made of
other pieces, lies beside.

    give_back()
"""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Return freed memory to the system, where the C library can be asked to."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
