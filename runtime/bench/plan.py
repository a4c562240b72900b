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
    "batch_size": (1, MOST_ROWS),
    "repetitions": (1, MOST_REPETITIONS),
    "seed": (0, 2**63 - 1),
}
"""The least and the most of each number of a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """How a measurement is done.

    Raises:
        InputError: if a number is out of range.
    """

    prompt_tokens: tuple[int, ...] = DEFAULT_PROMPT_TOKENS
    """Lengths of the prompts, tokens."""
    new_tokens: int = DEFAULT_NEW_TOKENS
    """Tokens to generate after each prompt; the first is timed with the prompt, the others step by step."""
    batch_size: int = 1
    """Sequences at once."""
    repetitions: int = DEFAULT_REPETITIONS
    """Bursts of each contender and prompt length."""
    threads: int | None = None
    """Threads within an operator, for every contender; None: the cores that this process may use."""
    provider: str = "auto"
    """Where to run: auto, cpu, cuda or cuda:N."""
    seed: int = 0
    """Seed of the token ids."""

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise InputError(f"{name} is {value!r}; it must be an integer from {least} to {most}.")
        if not self.prompt_tokens or any(type(n) is not int or n < 1 for n in self.prompt_tokens):
            raise InputError(
                f"prompt_tokens is {self.prompt_tokens!r}; give at least one integer of at least 1."
            )
        thread_count(self.threads)

    @property
    def starts(self) -> int:
        """Processes started for each contender, to time loading."""
        return min(self.repetitions, MOST_STARTS)

    def rows(self, length: int, vocab_size: int) -> list[list[int]]:
        """Return the prompts of one length: random ids, batch_size rows, the same at every call."""
        generator = np.random.default_rng([self.seed, length])
        rows: list[list[int]] = generator.integers(0, vocab_size, (self.batch_size, length)).tolist()
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
