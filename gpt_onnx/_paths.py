"""Where a path leads, links followed.

    real_path("current").name           # "my-gpt-2", which the link "current" stands for

``Path.resolve`` raises a RuntimeError for a link that leads to itself (until Python 3.13). Here that is a
path like any other, which nothing is at.
"""

from __future__ import annotations

import os
from pathlib import Path


def real_path(path: str | Path) -> Path:
    """Return the absolute path without links; of one that leads to itself, the link."""
    return Path(os.path.realpath(path))
