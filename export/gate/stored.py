"""``reference.safetensors``: enough of the reference to check a bundle again on a device that has no PyTorch.

case.{k}.input_ids   int64 (S,)       case.{k}.logits     float64 (n, V')
case.{k}.positions   int64 (n,)       case.{k}.tolerance  float64 (2,): largest max-error, largest RMS error
case.{k}.vocab_ids   int64 (V',), where V' is a part of the vocabulary
greedy.prompt, greedy.tokens  int64   greedy.margins      float64: by how much the best token leads the second
greedy.tolerance     float64 (1,): where a margin is not above twice this, either token is right
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from .cases import SEED, Facts, Ids, sequences_of
from .greedy import steps_of
from .oracle import Oracle
from .reference import Draft, Refused
from .report import GateReport
from .truth import Truth

FILE_NAME = "reference.safetensors"
MAX_BYTES = 1_000_000
LOGITS_BUDGET = 100_000
"""Numbers of 8 bytes, for logits and the ids of their tokens: 800 KB."""
LONGEST = 4096
"""Ids of the longest sequence: 32 KB."""
GREEDY = 32
LIKELY = 16  # of the most likely tokens at each position, those that a part of the vocabulary always holds

Arrays = dict[str, npt.NDArray[Any]]


def _plan(facts: Facts, texts: Sequence[Sequence[int]] | None) -> Iterator[tuple[Ids, list[int]]]:
    """Yield sequences and the positions to keep of each."""
    context, room = facts.context_length or 64, max(1, facts.affordable())
    longest, whole = min(2 * context, LONGEST, room), min(context, LONGEST, room)
    other = 1 if whole <= room // 4 else 0  # a second long kind of ids only where that costs little
    kinds = list(sequences_of(facts.within(longest), facts.vocab_size, texts, count=3).values())
    for kind, length in ((0, 1), (0, 7), (1, 33), (2, 64), (other, whole), (0, longest)):
        ids = kinds[kind][: facts.within(length)]
        size = len(ids)
        yield ids, sorted({0, size // 3, size // 2, size - 1} if size > 1 else {0})


def _truths(oracle: Oracle, plan: Iterator[tuple[Ids, list[int]]]) -> Iterator[tuple[Truth, list[int]]]:
    wanted = dict(plan)
    for ids, truth in zip(wanted, _what_it_takes(oracle, list(wanted)), strict=True):
        if truth is not None:
            yield truth, [position for position in wanted[ids] if position >= truth.first]


def _what_it_takes(oracle: Oracle, sequences: list[Ids]) -> list[Truth | None]:
    """Compute what the program takes, at once if it takes all; None for what it refuses."""
    try:
        return [*oracle.truths(sequences)]
    except Refused:
        return [_one(oracle, ids) for ids in sequences]


def _one(oracle: Oracle, ids: Ids) -> Truth | None:
    try:
        return oracle.truth(ids)
    except Refused:
        return None


def _vocabulary(truths: Sequence[tuple[Truth, list[int]]], vocab_size: int) -> npt.NDArray[np.int64] | None:
    """Choose which logits of a row are kept; None for all of them."""
    rows = sum(len(positions) + 1 for _, positions in truths)  # one more for the ids of what is kept
    room = LOGITS_BUDGET // max(rows, 1)
    if vocab_size <= room:
        return None
    likely = {int(t) for truth, at in truths for row in truth.logits(at) for t in np.argsort(-row)[:LIKELY]}
    order = np.random.default_rng(SEED).permutation(vocab_size)
    others = (int(token) for token in order if int(token) not in likely)
    chosen = sorted(likely)[:room] + [
        token for token, _ in zip(others, range(room - len(likely)), strict=False)
    ]
    return np.array(sorted(chosen), dtype=np.int64)


def _case_arrays(
    index: int, truth: Truth, positions: list[int], vocab: npt.NDArray[np.int64] | None
) -> Arrays:
    logits = truth.logits(positions)
    arrays: Arrays = {
        "input_ids": np.array(truth.ids, dtype=np.int64),
        "positions": np.array(positions, dtype=np.int64),
        "logits": np.ascontiguousarray(logits if vocab is None else logits[:, vocab]),
        "tolerance": np.array(truth.unit(positions).bounds),
    }
    if vocab is not None:
        arrays["vocab_ids"] = vocab
    return {f"case.{index}.{name}": array for name, array in arrays.items()}


def _greedy_arrays(oracle: Oracle, facts: Facts, prompt: Ids, draft: Draft | None) -> Arrays:
    room = GREEDY if facts.limit is None else min(GREEDY, facts.limit - len(prompt) + 1)
    tokens = oracle.reference.greedy(prompt, room, draft)
    if not tokens:
        return {}
    (steps,) = steps_of(oracle, [(prompt, tokens)])
    return {
        "greedy.prompt": np.array(prompt, dtype=np.int64),
        "greedy.tokens": np.array(tokens, dtype=np.int64),
        "greedy.margins": np.array([step.margin for step in steps], dtype=np.float64),
        "greedy.tolerance": np.array([max(step.tolerance for step in steps)]),
    }


def reference_arrays(
    oracle: Oracle,
    facts: Facts,
    texts: Sequence[Sequence[int]] | None = None,
    draft: Draft | None = None,
) -> Arrays:
    """Return what the file holds, by name.

    Args:
        oracle: The original program.
        facts: What the graphs can be asked for.
        texts: Ids of real text.
        draft: Guesses greedy tokens, to save passes.
    """
    truths = list(_truths(oracle, _plan(facts, texts)))
    vocab = _vocabulary(truths, facts.vocab_size)
    arrays: Arrays = {}
    for index, (truth, positions) in enumerate(truths):
        arrays |= _case_arrays(index, truth, positions, vocab)
    length = facts.only_length or max(1, min(16, (facts.limit or 32) // 2))
    prompts = sequences_of(length, facts.vocab_size, texts, count=2)
    return arrays | _greedy_arrays(oracle, facts, prompts.get("text", prompts["random"]), draft)


def write_reference(folder: Path, report: GateReport) -> Path:
    """Write what a gate that passed has gathered into a folder, the same bytes every time.

    Returns:
        The path of ``reference.safetensors``.
    """
    content = save({name: np.asarray(report.evidence[name]) for name in sorted(report.evidence)})
    assert len(content) <= MAX_BYTES, f"{FILE_NAME} has {len(content)} bytes; at most {MAX_BYTES} are allowed"
    path = folder / FILE_NAME
    path.write_bytes(content)
    return path
