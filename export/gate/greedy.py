"""Greedy generation: the tokens are those of float64, wherever it prefers one by more than the tolerance.

Where its two best are closer than twice the tolerance either is right, and the reference goes on from ours.
As the reference follows our tokens at every step, one pass over the finished sequence decides them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from gpt_onnx.runtime import Sampling
from gpt_onnx.runtime._arguments import counted

from .case import Case, Finding, Setting
from .cases import Ids
from .oracle import Oracle
from .tolerance import FloatArray
from .truth import Truth

PROMPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What float64 says where one token was chosen."""

    logits: FloatArray
    tolerance: float
    """Largest accepted error of a logit."""

    def shortfall(self, token: int) -> float:
        """By how much float64 prefers another token."""
        return float(self.logits.max() - self.logits[token])

    @property
    def margin(self) -> float:
        """By how much the best token leads the second."""
        if self.logits.size < 2:
            return float("inf")
        second, first = np.partition(self.logits, -2)[-2:]
        return float(first - second)


def _last_steps(truths: Iterable[Truth]) -> list[Step]:
    """Return what float64 says after each of several sequences."""
    return [
        Step(logits=t.logits([len(t.ids) - 1])[0], tolerance=t.unit([len(t.ids) - 1]).bounds[0])
        for t in truths
    ]


def _steps(truth: Truth, start: int) -> list[Step]:
    """Return what float64 says at each position of one sequence, from one on."""
    chosen = slice(start, len(truth.ids))
    tolerance = truth.unit(chosen).bounds[0]
    return [Step(logits=row, tolerance=tolerance) for row in truth.logits(chosen)]


def steps_of(oracle: Oracle, chosen: Sequence[tuple[Ids, Ids]]) -> list[list[Step]]:
    """Return, for each prompt with its tokens, what float64 says before each token, given those before it."""
    whole = [(*prompt, *tokens[:-1]) for prompt, tokens in chosen]
    if oracle.reference.causal:
        truths = oracle.truths(whole)
        return [_steps(truth, len(prompt) - 1) for truth, (prompt, _) in zip(truths, chosen, strict=True)]
    return [
        _last_steps(oracle.truth(ids[:length]) for length in range(len(prompt), len(ids) + 1))
        for ids, (prompt, _) in zip(whole, chosen, strict=True)
    ]


def judge(steps: Sequence[Step], tokens: Ids) -> Finding:
    """Accept each token that float64 prefers, or would but for twice the tolerance."""
    near_ties = sum(not step.margin > 2 * step.tolerance for step in steps)
    for index, (step, token) in enumerate(zip(steps, tokens, strict=True)):
        short = step.shortfall(token)
        if not short <= 2 * step.tolerance:
            best = int(step.logits.argmax())
            return Finding(
                fault=f"token {index + 1} is {token}; float64 prefers {best} by {short:.2e}, "
                f"more than twice the tolerance of {step.tolerance:.2e}",
                near_ties=near_ties,
            )
    return Finding(near_ties=near_ties)


def check_greedy(setting: Setting, prompts: Sequence[Ids], count: int) -> Finding:
    """Generate from a batch of prompts and judge every row."""
    greedy = Sampling(temperature=0.0)
    generations = setting.engine.generate(prompts, count, greedy, ignore_eos=True)
    rows = [tuple(int(token) for token in generation.ids) for generation in generations]
    if wrong := [len(tokens) for tokens in rows if len(tokens) != count]:
        return Finding(fault=f"{wrong[0]} tokens were generated; {count} were expected")
    near_ties = 0
    for steps, tokens in zip(
        steps_of(setting.oracle, list(zip(prompts, rows, strict=True))), rows, strict=True
    ):
        finding = judge(steps, tokens)
        if not finding.passed:
            return finding
        near_ties += finding.near_ties
    return Finding(near_ties=near_ties)


def greedy_size(setting: Setting) -> tuple[int, int]:
    """Return how long prompts are and how many tokens follow, within what the graphs take."""
    limit = setting.facts.limit
    prompt = PROMPT if limit is None else max(1, min(PROMPT, limit // 2))
    count = setting.level.greedy if limit is None else min(setting.level.greedy, limit - prompt)
    return (limit or prompt, 1) if setting.facts.only_length is not None else (prompt, count)


def greedy_cases(setting: Setting) -> Iterator[Case]:
    """A batch of unequal prompts at every batch size."""
    length, count = greedy_size(setting)
    for batch in setting.batches:
        sizes = [length if setting.facts.only_length else max(1, length - 5 * row) for row in range(batch)]
        start = list(setting.sequences).index("text") if batch == 1 and "text" in setting.sequences else 0
        prompts = [ids[:size] for ids, size in zip(setting.rows(batch, start), sizes, strict=True)]
        name = f"{counted(count, 'token')}, batch {batch}"
        if count:
            yield Case(group="greedy", name=name, run=partial(check_greedy, setting, prompts, count))
