"""A measurement as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table

from gpt_onnx.runtime._arguments import counted

if TYPE_CHECKING:
    from gpt_onnx.runtime.bench import BenchReport, ContenderReport, PromptReport
    from gpt_onnx.runtime.bench.environment import Environment
    from gpt_onnx.runtime.bench.statistics import Summary

MIB = 2**20
VERSUS = "; decode and TTFT: times as fast as eager PyTorch"


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


def _mib(count: int | None) -> str:
    return "-" if count is None else f"{count / MIB:,.0f}"


def _versus(prompt: PromptReport) -> tuple[str, str, str]:
    versus = prompt.versus_eager
    if versus is None:
        return "-", "-", "-"
    tokens = f"{versus.tokens.equal_tokens}/{versus.tokens.tokens} {versus.tokens.verdict}"
    return f"{versus.decode.ratio:.2f}x", f"{versus.ttft.ratio:.2f}x", tokens


def speed_table(report: BenchReport) -> Table:
    """Return a line for each contender and length of prompt."""
    columns = ("contender", "prompt", "TTFT ms", "step ms", "tokens/s", "decode", "TTFT", "tokens")
    compared = any(prompt.versus_eager for contender in report.contenders for prompt in contender.prompts)
    table = _table(f"median (p90){VERSUS if compared else ''}", columns)
    for contender in report.contenders:
        for prompt in contender.prompts:
            table.add_row(
                contender.name,
                str(prompt.prompt_tokens),
                _times(prompt.ttft_ms),
                _times(prompt.step_ms),
                f"{prompt.decode_tokens_per_s:,.0f}",
                *_versus(prompt),
            )
    return table


def load_table(report: BenchReport) -> Table:
    """Return a line for each contender: how long until it is ready, and the memory of its process."""
    columns = ("contender", "process start to ready ms", "load ms", "MiB when loaded", "peak MiB")
    table = _table("loading, and resident memory of the whole process", columns)
    for contender in report.contenders:
        table.add_row(
            contender.name,
            _times(contender.start_ms),
            _times(contender.load_ms),
            _mib(contender.resident_bytes),
            _mib(contender.peak_resident_bytes),
        )
    return table


def _describe(contender: ContenderReport) -> str:
    details = ", ".join(f"{name} {value}" for name, value in contender.details.items())
    return f"{contender.name}: on {contender.device}; {details}"


def _machine(environment: Environment) -> str:
    flags = " ".join(environment.cpu_flags) or "no flags of interest"
    threads = counted(environment.threads, "thread")
    return (
        f"{environment.cpu} ({flags}), {threads}, {environment.usable_cores} of "
        f"{environment.host_cores} cores; {environment.system}; Python {environment.python}; "
        + ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    )


def lines(report: BenchReport) -> Iterator[str]:
    """Yield what stands below the tables: contenders, machine, plan, notes."""
    yield from map(_describe, report.contenders)
    yield _machine(report.environment)
    plan = report.plan
    yield (
        f"{counted(plan.batch_size, 'sequence')}, {counted(plan.new_tokens, 'new token')}, "
        f"{counted(plan.repetitions, 'burst')} each, in turn; {counted(plan.starts, 'start')}; "
        f"greedy, random ids of seed {plan.seed}"
    )
    yield from (f"Note: {note}." for note in report.notes)
