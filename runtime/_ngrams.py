"""What came next the last time: guesses for a text that repeats itself.

    index = NgramIndex([5, 6, 7, 8, 5, 6])
    index.guess(3)                         # Guess(tokens=[7, 8, 5], length=2)
    index.add(7)

The last tokens of a text are looked up among its earlier ones: the longest of ``LENGTHS`` that stood there
before, at the place where it stood last (prompt lookup, Saxena 2023). What followed it is the guess; where
that runs into the end of the text, the guess goes on from its own beginning, as the text would if it repeats.
A token costs a few operations whatever the length of the text, and some hundred bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LENGTHS = (12, 8, 5, 3, 2)
"""Numbers of tokens that are looked up, the longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Tokens that may come next."""

    tokens: list[int]
    """In their order; none if the text's end has not occurred before."""
    length: int
    """How many tokens had occurred before, one of LENGTHS; 0 for no guess."""


NO_GUESS = Guess(tokens=[], length=0)


class NgramIndex:
    """A text and where each of its short sequences stood last; see the module."""

    def __init__(self, tokens: Iterable[int], lengths: Sequence[int] = LENGTHS) -> None:
        self._tokens: list[int] = []
        # Keys are hashes: a collision is found when the place is looked at, and loses that guess at most.
        self._followers: tuple[tuple[int, dict[int, int]], ...] = tuple((length, {}) for length in lengths)
        for token in tokens:
            self.add(token)

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, token: int) -> None:
        """Append a token to the text."""
        tokens, place = self._tokens, len(self._tokens)
        for length, followers in self._followers:
            if place >= length:
                followers[hash(tuple(tokens[-length:]))] = place
        tokens.append(token)

    def guess(self, count: int) -> Guess:
        """Return ``count`` tokens that may come next, or no guess."""
        tokens = self._tokens
        for length, followers in self._followers:
            last = tokens[-length:]
            place = followers.get(hash(tuple(last))) if len(last) == length else None
            if place is not None and tokens[place - length : place] == last:
                return Guess(tokens=self._from(place, count), length=length)
        return NO_GUESS

    def _from(self, place: int, count: int) -> list[int]:
        found = self._tokens[place : place + count]
        while len(found) < count:
            found += found[: count - len(found)]
        return found
