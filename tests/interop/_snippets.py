"""The programs of docs/clients.md, by the name in the comment before each: ``<!-- program: genai -->``."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
_PROGRAM = re.compile(r"<!-- program: ([a-z_]+) -->\n```[a-z+]+\n(.*?)```", re.DOTALL)


def snippets() -> dict[str, str]:
    """Return name to program."""
    return dict(_PROGRAM.findall(PAGE.read_text(encoding="utf-8")))
