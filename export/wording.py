"""Words of messages."""

from __future__ import annotations

from collections.abc import Iterable


def either(names: Iterable[object]) -> str:
    """Return names as the end of a sentence: ``a, b or c``."""
    *first, last = (str(name) for name in names)
    return f"{', '.join(first)} or {last}" if first else last
