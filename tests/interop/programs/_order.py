"""What each client's program is asked and answers: JSON on stdin and on stdout.

It runs in the client's own environment, where nothing of this project is to be had.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Rows = list[list[int]]


@dataclass(frozen=True)
class Order:
    """What to generate."""

    bundle: Path
    prompts: Sequence[Sequence[int]]
    """Ids; several are one batch."""
    new_tokens: int
    texts: Sequence[str]
    """The prompts as text."""


def answer(generate: Callable[[Order], dict[str, object]]) -> None:
    """Read the order, and print what ``generate`` makes of it."""
    values = json.load(sys.stdin)
    order = Order(Path(values["bundle"]), values["prompts"], values["new_tokens"], values["texts"])
    print(json.dumps(generate(order)))
