"""One graph in memory at a time: a large model's sessions are gigabytes, and no case needs two at once.

turns = Turns()
ships = TurnEngine(turns, Turn(open=lambda: engine, close=lambda _: engine.unload()))
exact = TurnEngine(turns, Turn(open=partial(OnnxGPT.load, folder)))
ships.logits(ids)
exact.logits(ids)                  # the engine has given its memory back
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpt_onnx.runtime import Generation

from .case import Engine, Logits, StepDecoder
from .given_back import give_back

T = TypeVar("T")


def _let_go(opened: object) -> None:
    """Do nothing: an object's memory is given back when nobody has it any more."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Turn(Generic[T]):
    """Something that has sessions of its own while it is its turn."""

    open: Callable[[], T]
    close: Callable[[T], None] = _let_go


class Turns:
    """Holds what is open: at most one thing."""

    def __init__(self) -> None:
        self._turn: Turn[Any] | None = None
        self._opened: Any = None

    def take(self, turn: Turn[T]) -> T:
        """Return what a turn opens, which is not to be kept; another's turn ends."""
        if self._turn is not turn:
            self.end()
            give_back()
            self._opened = turn.open()
            self._turn = turn
        opened: T = self._opened
        return opened

    def end(self) -> None:
        """Close what is open."""
        turn, opened = self._turn, self._opened
        self._turn = self._opened = None
        if turn is not None:
            turn.close(opened)


@dataclass(frozen=True, slots=True)
class TurnEngine:
    """An Engine that is loaded while it is its turn."""

    turns: Turns
    turn: Turn[Engine]

    @property
    def _engine(self) -> Engine:
        return self.turns.take(self.turn)

    def logits(self, *arguments: Any, **options: Any) -> Logits:
        """See Engine."""
        return self._engine.logits(*arguments, **options)

    def decoder(self, *arguments: Any, **options: Any) -> StepDecoder:
        """See Engine."""
        return self._engine.decoder(*arguments, **options)

    def generate(self, *arguments: Any, **options: Any) -> Sequence[Generation]:
        """See Engine."""
        return self._engine.generate(*arguments, **options)
