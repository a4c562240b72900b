"""Whole sequences: logits at every length and batch, and a clear refusal beyond the end of positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from gpt_onnx.errors import InputError
from gpt_onnx.runtime._arguments import counted

from .case import Case, Finding, Logits, Setting, Skipped
from .cases import MOST_WORK, Ids
from .tolerance import worst

MOST_LOGITS = 250_000_000  # 1 GB; 3 x 1024 tokens of GPT-2 have 150 million


def last_logits(setting: Setting, rows: Sequence[Ids]) -> list[Logits]:
    """Return (1, V) of each row: what a graph that computes the last position alone can give."""
    found = setting.engine.decoder(batch_size=len(rows)).append(rows, keep="last")
    return [row[None] for row in found]


def check_rows(setting: Setting, rows: Sequence[Ids]) -> Finding:
    """Compare the logits of a batch of equally long rows, each row by its own truth."""
    truths = setting.oracle.truths(rows)
    found = last_logits(setting, rows) if truths[0].first else list(setting.engine.logits(rows))
    return Finding(ratio=worst(truth.ratio(row) for truth, row in zip(truths, found, strict=True)))


def skip(reason: str) -> Finding:
    """Leave a case out, so that the report says so."""
    raise Skipped(reason)


def _too_much(setting: Setting, length: int, batch: int) -> str | None:
    """Say why a batch is not looked at; None where it is."""
    if length not in setting.lengths_at(batch):
        work = f"{setting.facts.parameters:,} parameters on {batch} x {length} tokens"
        return f"{work} are more float64 work than a case may cost ({MOST_WORK:.0e} parameters x tokens)"
    if batch != setting.batches[0] and batch * length * setting.facts.vocab_size > MOST_LOGITS:
        return f"its logits are more than {MOST_LOGITS:,}; smaller batches are looked at"
    return None


def length_cases(setting: Setting) -> Iterator[Case]:
    """Every length at every batch; what is too much is said to be left out."""
    for batch in setting.batches:
        for length in sorted({*setting.lengths, *setting.lengths_at(batch)}):
            name = f"{counted(length, 'token')}, batch {batch}"
            rows = [row[:length] for row in setting.rows(batch)]
            reason = _too_much(setting, length, batch)
            run = partial(check_rows, setting, rows) if reason is None else partial(skip, reason)
            yield Case(group="lengths", name=name, run=run)


def kind_cases(setting: Setting) -> Iterator[Case]:
    """Each kind of ids in every row: random, real text, tokens at the edges of the vocabulary."""
    batch, length = setting.batches[0], setting.facts.within(setting.level.decoded)
    for start, kind in enumerate(setting.sequences):
        rows = [row[:length] for row in setting.rows(batch, start)]
        yield Case(
            group="ids",
            name=f"{kind} ids, {counted(length, 'token')}",
            run=partial(check_rows, setting, rows),
        )


def check_refusal(setting: Setting, length: int) -> Finding:
    """See that a sequence that is too long is refused, not computed."""
    row = [index % setting.facts.vocab_size for index in range(length)]
    try:
        setting.engine.logits([row] * setting.batches[0])
    except InputError:
        return Finding()
    return Finding(fault=f"{length} tokens were computed; an InputError was expected")


def refusal_cases(setting: Setting) -> Iterator[Case]:
    """One token beyond what the graphs take."""
    limit = setting.facts.limit
    if limit is not None:
        name = f"{limit + 1} tokens are refused"
        yield Case(group="lengths", name=name, run=partial(check_refusal, setting, limit + 1))
