"""Decoding with the cache: in chunks, ragged, rewound, in turns, with rows dropped.

Logits, keys and values are compared at every position. The truth comes first: a decoder keeps its graph in
memory, and of a large model there is no room for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from .case import Case, Finding, Logits, Setting, StepDecoder
from .cases import Ids
from .tolerance import worst
from .truth import Truth, cache_ratio

TAIL = 8  # tokens decoded one by one at the end of the longest sequence


def feed(decoder: StepDecoder, rows: Sequence[Ids], chunk: int) -> list[Logits]:
    """Append each row in chunks and return its logits (S_i, V); rows that are done get nothing."""
    gathered: list[list[Logits]] = [[] for _ in rows]
    for start in range(0, max(map(len, rows)), chunk):
        parts = [row[start : start + chunk] for row in rows]
        for row, logits in enumerate(decoder.append(parts, keep="all")):
            gathered[row].append(logits)
    return [np.concatenate(parts) for parts in gathered]


def compare(
    truths: Sequence[Truth],
    decoder: StepDecoder,
    found: Sequence[Logits],
    starts: Sequence[int | None] | None = None,
) -> Finding:
    """Compare each row with its truth: its logits from a position on, and all its keys and values."""
    begins = starts or [None] * len(truths)
    logits = [truth.ratio(part, start) for truth, part, start in zip(truths, found, begins, strict=True)]
    return Finding(ratio=worst([*logits, cache_ratio(truths, decoder.keys_and_values())]))


def check_chunks(setting: Setting, rows: Sequence[Ids], chunk: int) -> Finding:
    """Decode in chunks of one size."""
    truths, decoder = setting.oracle.truths(rows), setting.engine.decoder(batch_size=len(rows))
    return compare(truths, decoder, feed(decoder, rows, chunk))


def check_last(setting: Setting, rows: Sequence[Ids]) -> Finding:
    """Ask for the last token's logits alone, as generation does."""
    truths = setting.oracle.truths(rows)
    found = setting.engine.decoder(batch_size=len(rows)).append(rows, keep="last")
    return Finding(
        ratio=worst(
            truth.ratio(row[None], len(truth.ids) - 1) for truth, row in zip(truths, found, strict=True)
        )
    )


def check_tail(setting: Setting, rows: Sequence[Ids]) -> Finding:
    """Take almost all of a long sequence at once and the rest one by one."""
    start = len(rows[0]) - TAIL
    truths, decoder = setting.oracle.truths(rows), setting.engine.decoder(batch_size=len(rows))
    decoder.append([ids[:start] for ids in rows], keep="last")
    found = feed(decoder, [ids[start:] for ids in rows], 1)
    return compare(truths, decoder, found, [start] * len(rows))


def check_rewind(setting: Setting, rows: Sequence[Ids], others: Sequence[Ids]) -> Finding:
    """Forget half of each row and go on with other tokens: as if those had been there from the start."""
    kept = [len(ids) // 2 for ids in rows]
    final = [
        ids[:length] + other[: max(1, length // 2)]
        for ids, length, other in zip(rows, kept, others, strict=True)
    ]
    truths, decoder = setting.oracle.truths(final), setting.engine.decoder(batch_size=len(rows))
    decoder.append(rows, keep="last")
    decoder.rewind(kept)
    found = feed(decoder, [ids[length:] for ids, length in zip(final, kept, strict=True)], chunk=3)
    return compare(truths, decoder, found, kept)


def check_turns(setting: Setting, rows: Sequence[Ids]) -> Finding:
    """Take a prompt, some tokens one by one, and a second prompt: as if it were all one prompt."""
    first, second = len(rows[0]) // 3, len(rows[0]) // 2
    truths, decoder = setting.oracle.truths(rows), setting.engine.decoder(batch_size=len(rows))
    parts = [feed(decoder, [ids[:first] for ids in rows], max(first, 1))] if first else []
    parts += [feed(decoder, [ids[first:second] for ids in rows], 1)] if second > first else []
    parts += [feed(decoder, [ids[second:] for ids in rows], len(rows[0]))]
    found = [np.concatenate(turns) for turns in zip(*parts, strict=True)]
    return compare(truths, decoder, found)


def check_kept_rows(setting: Setting, rows: Sequence[Ids]) -> Finding:
    """Drop rows from a batch half way; the others go on, in another order."""
    half, order = max(1, len(rows[0]) // 2), list(range(len(rows) - 1, 0, -1))
    left = [rows[row] for row in order]
    truths, decoder = setting.oracle.truths(left), setting.engine.decoder(batch_size=len(rows))
    decoder.append([ids[:half] for ids in rows], keep="last")
    decoder.keep_rows(order)
    found = feed(decoder, [ids[half:] for ids in left], 1)
    return compare(truths, decoder, found, [half] * len(left))


def _ragged(setting: Setting, batch: int) -> list[Ids]:
    """Rows of unequal lengths, the first as long as the level decodes."""
    length = setting.facts.within(setting.level.decoded)
    lengths = [max(1, length - 5 * row) for row in range(batch)]
    return [ids[:size] for ids, size in zip(setting.rows(batch), lengths, strict=True)]


def decoding_cases(setting: Setting) -> Iterator[Case]:
    """Every chunk at every batch, and what a chat does with a cache; nothing for graphs without one."""
    if not setting.facts.has_cache:
        return
    for batch in setting.batches:
        yield from _chunk_cases(setting, batch)
        yield from _chat_cases(setting, batch)


def _chunk_cases(setting: Setting, batch: int) -> Iterator[Case]:
    rows = _ragged(setting, batch)
    for chunk in (*setting.level.chunks, len(rows[0])):
        name = f"chunks of {chunk}, batch {batch}"
        yield Case(group="cache", name=name, run=partial(check_chunks, setting, rows, chunk))
    run = partial(check_last, setting, rows)
    yield Case(group="cache", name=f"last logits alone, batch {batch}", run=run)


def _chat_cases(setting: Setting, batch: int) -> Iterator[Case]:
    rows = _ragged(setting, batch)
    even = [ids[: setting.facts.within(33)] for ids in setting.rows(batch)]
    if len(rows[-1]) >= 2:
        run = partial(check_rewind, setting, rows, setting.rows(batch, start=1))
        yield Case(group="cache", name=f"rewound, batch {batch}", run=run)
    if len(even[0]) >= 2:
        yield Case(group="cache", name=f"two turns, batch {batch}", run=partial(check_turns, setting, even))
    if len(even[0]) >= 2 and batch > 1:
        yield Case(
            group="cache", name=f"rows dropped, batch {batch}", run=partial(check_kept_rows, setting, even)
        )
    longest = setting.lengths_at(batch)[-1]
    if longest > TAIL:
        whole = [ids[:longest] for ids in setting.rows(batch)]
        name = f"the last {TAIL} of {longest} tokens, batch {batch}"
        yield Case(group="cache", name=name, run=partial(check_tail, setting, whole))
