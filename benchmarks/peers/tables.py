"""A run of the peers as tables in Markdown, for the terminal and for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.peers.bars import SIZES, Verdict
from gpt_onnx.runtime.bench.report import BenchReport, ContenderReport, PromptReport

MB = 1e6
UNKNOWN = "-"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield _row(cells)
    yield f"|---|{'---:|' * (len(cells) - 1)}"


def _mb(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / MB:.0f}"


def _equal(prompt: PromptReport) -> str:
    """Tokens that are those of the baseline, until the first other one."""
    if prompt.versus is None:
        return UNKNOWN
    tokens = prompt.versus.tokens
    return f"{tokens.equal_tokens}/{tokens.tokens}"


def _speeds(contender: ContenderReport, lengths: Sequence[int]) -> Iterator[str]:
    prompts = {prompt.prompt_tokens: prompt for prompt in contender.prompts if prompt.batch_size == 1}
    for length in lengths:
        prompt = prompts.get(length)
        if prompt is None:
            yield from (UNKNOWN,) * 3
            continue
        yield f"{prompt.decode_tokens_per_s:.0f}"
        yield f"{prompt.ttft_ms.median:.0f}"
        yield _equal(prompt)


def contender_table(report: BenchReport, missing: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a table with a row for each contender, those that are missing included."""
    lengths = sorted({prompt.prompt_tokens for one in report.contenders for prompt in one.prompts})
    speeds = [
        text
        for length in lengths
        for text in (f"decode at {length}, tokens/s", f"prefill {length}, ms", f"equal tokens at {length}")
    ]
    yield from _head(("contender", *speeds, "file MB", "peak RSS MB", "ready in s"))
    for contender in report.contenders:
        yield _row(
            (
                contender.name,
                *_speeds(contender, lengths),
                _mb(contender.file_bytes),
                _mb(contender.peak_resident_bytes),
                f"{contender.start_ms.median / 1e3:.2f}",
            )
        )
    for name in missing:
        yield _row((name, *(UNKNOWN,) * (len(speeds) + 3)))


def _asked(verdict: Verdict) -> str:
    return f"{'at most' if verdict.bar.what in SIZES else 'at least'} {verdict.bar.wanted:.2f}"


def _found(verdict: Verdict) -> str:
    if verdict.bar.what in SIZES:
        return f"{verdict.ratio:.2f}"
    return f"{verdict.ratio:.2f} ({verdict.low:.2f} to {verdict.high:.2f})"


def verdict_table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the lines of a table with a row for each bar."""
    yield from _head(("bar", "prompt", "against", "asked", "ratio", "met"))
    for verdict in verdicts:
        bar = verdict.bar
        prompt = UNKNOWN if bar.prompt_tokens is None else str(bar.prompt_tokens)
        met = "yes" if verdict.is_met else "no"
        yield _row(
            (f"{bar.what}, {bar.ours}", prompt, verdict.against, _asked(verdict), _found(verdict), met)
        )
