"""What to measure: how many tokens, how often, where; and the token ids, the same for every contender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gpt_onnx.errors import InputError
from gpt_onnx.runtime._threads import thread_count

DEFAULT_PROMPT_TOKENS = (128, 512)
DEFAULT_NEW_TOKENS = 64
DEFAULT_REPETITIONS = 5
MOST_NEW_TOKENS = 65_536
MOST_ROWS = 1024
MOST_REPETITIONS = 10_000
LONGEST_PROMPT = 4096
CONTEXTS = 4
"""Where positions have no end, prompts have at most LONGEST_PROMPT tokens, or CONTEXTS trained lengths."""
MOST_STARTS = 3  # processes started for one contender's load time: PyTorch alone takes seconds to import


RANGES: Mapping[str, tuple[int, int]] = {
    "new_tokens": (2, MOST_NEW_TOKENS),
    "repetitions": (1, MOST_REPETITIONS),
    "seed": (0, 2**63 - 1),
}
"""The least and the most of each number of a plan."""
LISTS: Mapping[str, int | None] = {"prompt_tokens": None, "batch_sizes": MOST_ROWS}
"""The most that an element of each list of a plan may be."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Point:
    """What is measured at once: so many sequences after prompts of so many tokens."""

    batch_size: int
    prompt_tokens: int


def _check_list(name: str, values: tuple[int, ...], most: int | None) -> None:
    if not values or any(type(n) is not int or n < 1 or (most and n > most) for n in values):
        limit = f" and at most {most}" if most else ""
        raise InputError(f"{name} is {values!r}; give at least one integer of at least 1{limit}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """How a measurement is done.

    Raises:
        InputError: if a number is out of range.
    """

    prompt_tokens: tuple[int, ...] = DEFAULT_PROMPT_TOKENS
    """Lengths of the prompts, tokens; the steps after a prompt of N tokens have contexts from N on."""
    new_tokens: int = DEFAULT_NEW_TOKENS
    """Tokens to generate after each prompt; the first is timed with the prompt, the others step by step."""
    batch_sizes: tuple[int, ...] = (1,)
    """Sequences at once; each number is measured at each length of prompt."""
    repetitions: int = DEFAULT_REPETITIONS
    """Bursts of each contender, length of prompt and number of sequences."""
    threads: int | None = None
    """Threads within an operator, for every contender; None: the cores that this process may use."""
    provider: str = "auto"
    """Where to run: auto, cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of the token ids."""
    bandwidth: bool = False
    """Whether to measure the machine's memory too; takes seconds, and at most a quarter of what is free."""

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise InputError(f"{name} is {value!r}; it must be an integer from {least} to {most}.")
        for name, limit in LISTS.items():
            _check_list(name, getattr(self, name), limit)
        thread_count(self.threads)

    @property
    def starts(self) -> int:
        """Processes started for each contender, to time loading."""
        return min(self.repetitions, MOST_STARTS)

    def points(self, lengths: Iterable[int]) -> list[Point]:
        """Return every number of sequences at every length of prompt."""
        return [
            Point(batch_size=batch_size, prompt_tokens=length)
            for batch_size in dict.fromkeys(self.batch_sizes)
            for length in lengths
        ]

    def rows(self, point: Point, vocab_size: int) -> list[list[int]]:
        """Return the prompts of one point: random ids, the same at every call."""
        generator = np.random.default_rng([self.seed, point.prompt_tokens])
        shape = (point.batch_size, point.prompt_tokens)
        rows: list[list[int]] = generator.integers(0, vocab_size, shape).tolist()
        return rows


def _longest(plan: BenchPlan, limits: Iterable[int | None], trained: Iterable[int | None]) -> tuple[int, str]:
    """Return the longest prompt, and why none is longer."""
    limit = min((limit for limit in limits if limit is not None), default=None)
    if limit is None:
        contexts = [CONTEXTS * length for length in trained if length is not None]
        longest = max(LONGEST_PROMPT, min(contexts, default=0))
        return longest, "longer ones are not measured where positions have no end"
    if limit < RANGES["new_tokens"][0]:
        raise InputError(
            f"the maximum context window is {limit}, and a step is timed from one token to the next, which "
            "takes two; measure a bundle with a longer one."
        )
    if plan.new_tokens > limit:
        raise InputError(
            f"{plan.new_tokens} new tokens are asked for and the maximum context window is {limit}; "
            f"ask for at most {limit} with --new-tokens."
        )
    longest = limit - plan.new_tokens + 1  # the last token is never fed
    return longest, (
        f"with {plan.new_tokens} new tokens no more fit into the maximum context window of {limit}"
    )


def fit_prompts(
    plan: BenchPlan, limits: Iterable[int | None], trained: Iterable[int | None] = ()
) -> tuple[tuple[int, ...], list[str]]:
    """Cut prompts so that they and the new tokens fit into the shortest context of all contenders.

    Args:
        plan: The plan.
        limits: The longest sequence of each contender; None: any.
        trained: The length of each contender's training sequences, where known. Where no contender has a
            limit, prompts are cut to CONTEXTS times that, or to LONGEST_PROMPT: attention takes the square.

    Returns:
        The lengths without repeats, in order, and a sentence for each cut.

    Raises:
        InputError: if not even a prompt of one token fits.
    """
    longest, why = _longest(plan, limits, trained)
    cut = {length: min(length, longest) for length in plan.prompt_tokens}
    notes = [
        f"prompts of {asked} tokens were cut to {used}: {why}" for asked, used in cut.items() if used < asked
    ]
    return tuple(dict.fromkeys(cut.values())), notes
