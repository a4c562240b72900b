"""What to measure: how many tokens, how often, where; and the token ids, the same for every contender."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpt_onnx.errors import InputError

DEFAULT_PROMPT_TOKENS = (128, 512)
DEFAULT_NEW_TOKENS = 64
DEFAULT_REPETITIONS = 5
MOST_STARTS = 3  # processes started for one contender's load time: PyTorch alone takes seconds to import


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
        least = {"new_tokens": 2, "batch_size": 1, "repetitions": 1, "seed": 0}
        for name, lowest in least.items():
            if type(getattr(self, name)) is not int or getattr(self, name) < lowest:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; it must be an integer of at least {lowest}."
                )
        if not self.prompt_tokens or any(type(n) is not int or n < 1 for n in self.prompt_tokens):
            raise InputError(
                f"prompt_tokens is {self.prompt_tokens!r}; give at least one integer of at least 1."
            )
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise InputError(f"threads is {self.threads!r}; it must be an integer of at least 1.")

    @property
    def starts(self) -> int:
        """Processes started for each contender, to time loading."""
        return min(self.repetitions, MOST_STARTS)

    def rows(self, length: int, vocab_size: int) -> list[list[int]]:
        """Return the prompts of one length: random ids, batch_size rows, the same at every call."""
        generator = np.random.default_rng([self.seed, length])
        rows: list[list[int]] = generator.integers(0, vocab_size, (self.batch_size, length)).tolist()
        return rows


def fit_prompts(plan: BenchPlan, limits: Iterable[int | None]) -> tuple[tuple[int, ...], list[str]]:
    """Cut prompts so that they and the new tokens fit into the shortest context of all contenders.

    Args:
        plan: The plan.
        limits: The longest sequence of each contender; None: any.

    Returns:
        The lengths without repeats, in order, and a sentence for each cut.

    Raises:
        InputError: if not even a prompt of one token fits.
    """
    limit = min((limit for limit in limits if limit is not None), default=None)
    longest = None if limit is None else limit - plan.new_tokens + 1  # the last token is never fed
    if longest is not None and longest < 1:
        raise InputError(
            f"{plan.new_tokens} new tokens are asked for and the maximum context window is {limit}; "
            f"ask for at most {limit} with --new-tokens."
        )
    cut = {length: min(length, longest or length) for length in plan.prompt_tokens}
    notes = [
        f"prompts of {asked} tokens were cut to {used}: with {plan.new_tokens} new tokens no more fit into "
        f"the maximum context window of {limit}"
        for asked, used in cut.items()
        if used < asked
    ]
    return tuple(dict.fromkeys(cut.values())), notes
