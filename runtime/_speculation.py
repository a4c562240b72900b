"""When to try out a guess, and how long a one.

A guess of k tokens is tried in one run over k + 1 new tokens, which costs more than a run over one and gives
up to k + 1 tokens. With the probability a that a guessed token is right, it gives

    1 + a + a^2 + ... + a^k

of them on average. ``Adaptive`` measures both sides while it runs: the times of runs by their width, and how
often guesses were right, for each number of tokens that had occurred before. It watches guesses that are not
tried as well, for whether the first token is right is seen anyway, so a text that does not repeat costs no
run, and one that begins to repeat is noticed within a few tokens. ``Always`` tries every guess.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._ngrams import LENGTHS, NO_GUESS, NgramIndex

AUTO, OFF = "auto", "off"
MOST_GUESSED = 31
"""Tokens of a guess: a run has one more."""

COUNTS = (15, 11, 7, 5, 3, 2, 1)
"""Lengths of guess that ``Adaptive`` chooses from: kernels work on four or more rows at a time."""
MARGIN = 1.05
"""Tokens for the price of one that must be expected before a guess is tried."""
COST_PER_TOKEN = 0.27
"""Of a step, for each further token in it, before it has been measured."""
TIMES_KEPT, FEW_TIMES = 7, 3
"""How many times of a width are kept, of which the median counts, as a machine has other things to do now and
then; and how many are too few to believe that a width costs more than was expected."""
LEAST = 0.15
"""Probability below which nothing is worth trying: 1 / (1 - 0.15) tokens at most."""
FIRST_RIGHT, FIRST_SEEN = 1.2, 4.0
"""What is believed at first: so many right of so many guessed tokens, too few to try."""
MEMORY = 0.92
"""Weight of what was seen before, with each token that is seen: some dozen count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How many guesses were tried, and what they were worth."""

    runs: int
    """Runs in which a guess was tried."""
    proposed: int
    """Tokens guessed in them."""
    accepted: int
    """Of those, the tokens that the model chose too: so many runs were saved."""


def unmeasured_cost(width: int) -> float:
    """Return what a run over ``width`` tokens is believed to cost, as a multiple of a run over one."""
    return 1 + COST_PER_TOKEN * (width - 1)


class RunTimes:
    """What a run over several new tokens costs, as a multiple of a run over one."""

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}
        self._costs: dict[int, float] = {}
        self._warm: set[int] = set()

    def add(self, width: int, seconds: float) -> None:
        """Take notice of a run over ``width`` new tokens; not of the first, which is slower."""
        if width not in self._warm:
            self._warm.add(width)
            return
        times = self._times.setdefault(width, deque(maxlen=TIMES_KEPT))
        times.append(seconds)
        if width > 1 or len(times) < TIMES_KEPT:
            self._costs.clear()

    def cost(self, width: int) -> float:
        """Return the cost of a run over ``width`` tokens: measured, or drawn from its nearest neighbours."""
        if width not in self._costs:
            self._costs[width] = self._drawn(width)
        return self._costs[width]

    def _measured(self, width: int) -> float:
        times = self._times[width]
        cost = sorted(times)[len(times) // 2] / sorted(self._times[1])[len(self._times[1]) // 2]
        return cost if len(times) >= FEW_TIMES else min(cost, unmeasured_cost(width))

    def _drawn(self, width: int) -> float:
        if 1 not in self._times:
            return unmeasured_cost(width)
        below = max(known for known in self._times if known <= width)
        above = min((known for known in self._times if known >= width), default=None)
        low = self._measured(below)
        if above is None:
            slope = (low - 1) / (below - 1) if below > 1 else COST_PER_TOKEN
            return low + slope * (width - below)
        share = (width - below) / (above - below) if above > below else 0.0
        return low + share * (self._measured(above) - low)


class Acceptance:
    """How likely a guessed token is right, for each length that had occurred before; the past fades."""

    def __init__(self, lengths: Sequence[int] = LENGTHS) -> None:
        self._right = dict.fromkeys(lengths, FIRST_RIGHT)
        self._seen = dict.fromkeys(lengths, FIRST_SEEN)

    def add(self, length: int, right: bool) -> None:
        """Take notice of one guessed token."""
        self._right[length] = MEMORY * self._right[length] + right
        self._seen[length] = MEMORY * self._seen[length] + 1

    def probability(self, length: int) -> float:
        """Return the probability that a guessed token is right."""
        return self._right[length] / self._seen[length]


def expected_tokens(probability: float, count: int) -> float:
    """Return how many tokens a run gives on average that tries ``count`` guessed ones."""
    if probability == 1:
        return count + 1.0
    return float((1 - probability ** (count + 1)) / (1 - probability))


class Speculator(ABC):
    """Guesses for one row, and its count of what became of them."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._index = NgramIndex(tokens)
        self._runs = self._proposed = self._accepted = 0

    @property
    def result(self) -> Speculation:
        """What was tried so far."""
        return Speculation(runs=self._runs, proposed=self._proposed, accepted=self._accepted)

    @abstractmethod
    def guess(self, room: int) -> Sequence[int]:
        """Return at most ``room`` tokens to try; none for a run over one token."""

    def tried(self, count: int, seconds: float) -> None:
        """Take notice of a run that tries ``count`` tokens of the last guess, and of its time."""
        self._runs, self._proposed = self._runs + 1, self._proposed + count

    @abstractmethod
    def stepped(self, seconds: float) -> None:
        """Take notice of the time of a run over one token."""

    def chosen(self, token: int, guessed: int | None) -> None:
        """Take notice of a new token, and of what was tried in its place, if anything."""
        self._accepted += token == guessed
        self._index.add(token)


class Always(Speculator):
    """Tries every guess, of up to ``most`` tokens."""

    def __init__(self, tokens: Sequence[int], most: int) -> None:
        super().__init__(tokens)
        self._most = most

    def guess(self, room: int) -> Sequence[int]:
        """See Speculator."""
        return self._index.guess(min(self._most, room)).tokens if room > 0 else ()

    def stepped(self, seconds: float) -> None:
        """See Speculator; nothing depends on it."""


class Adaptive(Speculator):
    """Tries a guess when more tokens are expected of it than it costs; see the module."""

    def __init__(self, tokens: Sequence[int]) -> None:
        super().__init__(tokens)
        self._times, self._acceptance = RunTimes(), Acceptance()
        self._guess, self._place = NO_GUESS, 0

    def guess(self, room: int) -> Sequence[int]:
        """See Speculator."""
        self._guess, self._place = self._index.guess(COUNTS[0]), 0
        if self._guess.length == 0:
            return ()
        probability = self._acceptance.probability(self._guess.length)
        if probability < LEAST:
            return ()
        counts = [0, *(count for count in COUNTS if count <= room)]
        return self._guess.tokens[: max(counts, key=lambda count: self._worth(probability, count))]

    def _worth(self, probability: float, count: int) -> float:
        """Return how many tokens a run is expected to give for the price of one."""
        if count == 0:
            return MARGIN
        return expected_tokens(probability, count) / self._times.cost(count + 1)

    def tried(self, count: int, seconds: float) -> None:
        """See Speculator."""
        super().tried(count, seconds)
        self._times.add(count + 1, seconds)

    def stepped(self, seconds: float) -> None:
        """See Speculator."""
        self._times.add(1, seconds)

    def chosen(self, token: int, guessed: int | None) -> None:
        """See Speculator."""
        super().chosen(token, guessed)
        if self._guess.length and (guessed is not None or self._place == 0):
            self._acceptance.add(self._guess.length, token == self._guess.tokens[self._place])
        self._place += 1


FIXED: Mapping[str, type[Adaptive] | None] = {AUTO: Adaptive, OFF: None}
"""What the words mean."""


def make_speculator(speculate: int | str, tokens: Sequence[int]) -> Speculator | None:
    """Return the speculator of a row that has ``tokens``; None for OFF and 0."""
    if isinstance(speculate, int):
        return Always(tokens, speculate) if speculate else None
    kind = FIXED[speculate]
    return None if kind is None else kind(tokens)
