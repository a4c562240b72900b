"""A measurement as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from gpt_onnx.cli._units import in_units
from gpt_onnx.runtime._arguments import counted

if TYPE_CHECKING:
    from gpt_onnx.runtime.bench import BenchReport, ContenderReport, PromptReport
    from gpt_onnx.runtime.bench.environment import Environment
    from gpt_onnx.runtime.bench.report import MemorySpeed
    from gpt_onnx.runtime.bench.statistics import Paired, Summary

MB = 1_000_000


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(
        title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0)
    )
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", overflow="fold")
    return table


def _digits(value: float) -> str:
    """Return three significant digits, so that a line fits into 80 columns."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def _times(summary: Summary) -> str:
    return f"{_digits(summary.median)} ({_digits(summary.p90)})"


def _mb(count: int | None) -> str:
    return "-" if count is None else _digits(count / MB)


def _bandwidth(prompt: PromptReport) -> tuple[str, str]:
    traffic = prompt.traffic
    if traffic is None:
        return "-", "-"
    return _digits(traffic.gb_per_s), "-" if traffic.share is None else f"{traffic.share:.0%}"


def speed_table(report: BenchReport) -> Table:
    """Return a line for each contender, number of sequences and length of prompt."""
    several = len(set(report.plan.batch_sizes)) > 1
    columns = ("prompt", "TTFT ms", "step ms", "tokens/s", "GB/s", "of memory")
    table = _table("median (p90)", ("contender", *(("rows",) if several else ()), *columns))
    for contender in report.contenders:
        for prompt in contender.prompts:
            table.add_row(
                contender.name,
                *([str(prompt.batch_size)] if several else []),
                str(prompt.prompt_tokens),
                _times(prompt.ttft_ms),
                _times(prompt.step_ms),
                _digits(prompt.decode_tokens_per_s),
                *_bandwidth(prompt),
            )
    return table


def _ratio(paired: Paired) -> str:
    if not paired.confidence:  # one round
        return f"{paired.ratio:.2f}x"
    return f"{paired.ratio:.2f}x ({paired.low:.2f} to {paired.high:.2f})"


def versus_table(report: BenchReport) -> Table:
    """Return a line for each contender that is compared with the baseline."""
    several = len(set(report.plan.batch_sizes)) > 1
    title = f"times as fast as {report.baseline}: median of rounds (interval)"
    columns = ("contender", *(("rows",) if several else ()), "prompt", "decode", "TTFT", "tokens")
    table = _table(title, columns)
    for contender in report.contenders:
        for prompt in contender.prompts:
            versus = prompt.versus
            if versus is not None:
                table.add_row(
                    contender.name,
                    *([str(prompt.batch_size)] if several else []),
                    str(prompt.prompt_tokens),
                    _ratio(versus.decode),
                    _ratio(versus.ttft),
                    f"{versus.tokens.equal_tokens}/{versus.tokens.tokens} {versus.tokens.verdict}",
                )
    return table


def load_table(report: BenchReport) -> Table:
    """Return a line for each contender: size, quality, how long until it is ready, and its memory."""
    columns = ("contender", "precision", "disk MB", "KL", "start ms", "load ms", "loaded MB", "peak MB")
    table = _table("size, quality, loading, and resident memory of the whole process", columns)
    for contender in report.contenders:
        table.add_row(
            contender.name,
            str(contender.details.get("precision", "-")),
            _mb(contender.file_bytes),
            "-" if contender.kl is None else f"{contender.kl:.2g}",
            _times(contender.start_ms),
            _times(contender.load_ms),
            _mb(contender.resident_bytes),
            _mb(contender.peak_resident_bytes),
        )
    return table


def tables(report: BenchReport) -> list[Table]:
    """Return all tables."""
    compared = [] if report.baseline is None else [versus_table(report)]
    return [speed_table(report), *compared, load_table(report)]


def _describe(contender: ContenderReport) -> str:
    details = ", ".join(f"{name} {value}" for name, value in contender.details.items())
    versions = ", ".join(f"{name} {version}" for name, version in contender.versions.items())
    own = f"; {versions}" if contender.kind == "peer" and versions else ""
    return f"{contender.name}: on {contender.device}; {details}{own}"


def _machine(environment: Environment) -> str:
    flags = " ".join(environment.cpu_flags) or "no flags of interest"
    caches = [f"{level} {in_units(size)}" for level, size in environment.cache_bytes.items()]
    threads = counted(environment.threads, "thread")
    return (
        f"{environment.cpu} ({'; '.join([flags, *caches])}), {threads}, "
        f"{environment.usable_cores} of {environment.host_cores} cores; {environment.system}; "
        f"Python {environment.python}; "
        + ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    )


def _memory(speeds: Sequence[MemorySpeed]) -> str:
    read = ", ".join(
        f"{speed.gb_per_s:.1f} GB/s of {speed.array_bytes / MB:,.0f} MB ({speed.kernel})" for speed in speeds
    )
    return f"memory, read again and again by as many threads: {read}"


def lines(report: BenchReport) -> Iterator[str]:
    """Yield what stands below the tables: contenders, machine, memory, plan, failures, notes."""
    yield from map(_describe, report.contenders)
    yield _machine(report.environment)
    if report.memory:
        yield _memory(report.memory)
    plan = report.plan
    batches = " or ".join(str(size) for size in plan.batch_sizes[:-1])
    last = counted(plan.batch_sizes[-1], "sequence")
    yield (
        f"{f'{batches} or ' if batches else ''}{last}, {counted(plan.new_tokens, 'new token')}, "
        f"{counted(plan.repetitions, 'burst')} each, in turn; {counted(plan.starts, 'start')}; "
        f"greedy, random ids of seed {plan.seed}"
    )
    yield from (f"Not measured: {name}: {why}" for name, why in report.failures.items())
    yield from (f"Note: {note}." for note in report.notes)
