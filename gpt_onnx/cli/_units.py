"""Bytes for people."""

from __future__ import annotations


def in_units(size: int) -> str:
    """Return bytes for people, e.g. ``1,536 B``, ``23.4 MB``."""
    if size < 10_000:
        return f"{size:,} B"
    for unit, power in (("kB", 1_000), ("MB", 1_000_000)):
        if size < 1_000 * power:
            return f"{size / power:.1f} {unit}"
    return f"{size / 1_000_000_000:.2f} GB"
