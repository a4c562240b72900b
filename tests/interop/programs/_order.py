"""What each client's program is asked and answers: JSON on stdin and on stdout.

It runs in the client's own environment, where nothing of this project is to be had.
"""

from __future__ import annotations

import json
import os
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
    """Answer orders, a line each, with what is made of them: "ids", and "texts" where there are words.

    An order that fails is answered with its "error". What libraries print is no answer, and goes to stderr.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            values = json.loads(line)
            order = Order(Path(values["bundle"]), values["prompts"], values["new_tokens"], values["texts"])
            made = generate(order)
        except Exception as exc:
            made = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(made), file=answers, flush=True)
