"""A contender on its way: its process, and what it was measured to do."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from .contender import Answer, Burst
from .entrant import Entrant
from .facts import Facts
from .plan import Point
from .worker import Worker


@dataclass(slots=True, kw_only=True)
class Runner:
    """One of those that take part."""

    entrant: Entrant
    worker: Worker | None = None
    facts: Facts = field(default_factory=lambda: Facts(device=""))
    starts_ms: list[float] = field(default_factory=list)
    loads_ms: list[float] = field(default_factory=list)
    resident_bytes: int | None = None
    answers: dict[Point, Answer] = field(default_factory=dict)
    bursts: dict[Point, list[Burst]] = field(default_factory=dict)
    """One a round."""
    skipped: set[Point] = field(default_factory=set)
    """What it cannot do."""

    @property
    def name(self) -> str:
        """As the report calls it."""
        return self.entrant.name

    @property
    def kind(self) -> str:
        """See Entrant."""
        return self.entrant.kind

    def ask(self, what: str, **order: Any) -> dict[str, Any]:
        """Pass an order to the process."""
        assert self.worker is not None
        return self.worker.ask({"do": what, **order})

    def load(self, device: str, threads: int) -> None:
        """Start a fresh process and have it load."""
        self.close()
        before = time.perf_counter()
        self.worker = Worker(self.entrant.program)
        entrant = self.entrant
        loaded = self.ask(
            "load", source=entrant.source, device=device, threads=threads, options=dict(entrant.options)
        )
        self.starts_ms.append(1e3 * (time.perf_counter() - before))
        self.loads_ms.append(loaded["load_ms"])
        self.resident_bytes = loaded["resident_bytes"]
        self.learn()

    def learn(self) -> None:
        """Ask for the facts as they are now."""
        self.facts = Facts.read(self.ask("facts"), self.name)

    def answer(self, point: Point, rows: list[list[int]], new_tokens: int) -> None:
        """Generate once without a clock; keep the tokens."""
        self.answers[point] = Answer(**self.ask("answer", rows=rows, new_tokens=new_tokens))

    def burst(self, point: Point, rows: list[list[int]], new_tokens: int) -> None:
        """Take one turn with a clock."""
        burst = Burst(**self.ask("burst", rows=rows, new_tokens=new_tokens))
        self.bursts.setdefault(point, []).append(burst)

    @property
    def is_alive(self) -> bool:
        """Whether its process takes orders."""
        return self.worker is not None and self.worker.is_alive

    def close(self, *, kill: bool = False) -> None:
        """End the process, if there is one; at once, if it is to be killed."""
        if self.worker is not None:
            self.worker.close(kill=kill)
            self.worker = None
