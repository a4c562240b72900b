"""The signals that ask a process to end: ctrl-C, ``kill``, and SIGHUP when its terminal goes."""

from __future__ import annotations

import signal

ENDING = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None  # Windows has no SIGHUP
)
