"""What ``gpt-onnx export --dry-run`` says of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table

from gpt_onnx.cli._units import in_units

if TYPE_CHECKING:
    from gpt_onnx.export.plan import ExportPlan
    from gpt_onnx.export.plan_integers import IntegerPlan

WRITTEN, ESTIMATE = "yes", "no: an estimate"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {_shown(inner)}" for key, inner in value.items() if inner is not None)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _configuration(plan: ExportPlan) -> str:
    if plan.config is None:
        return (
            f"of the module's own; vocab_size {plan.vocab_size}, context_length {plan.context_length or '?'}"
        )
    return ", ".join(f"{key} {_shown(value)}" for key, value in plan.told_config.items())


def _tokenizer(plan: ExportPlan) -> str:
    if not plan.tokenizer:
        return "no: the bundle will take and give ids"
    return "yes, with a chat template" if plan.chat_template else "yes, without a chat template"


def _generation(plan: ExportPlan) -> str:
    told = ", ".join(f"{key} {value}" for key, value in plan.generation.items())
    return told or "nothing is said; the bundle gets ours"


def _integers(plan: IntegerPlan) -> str:
    return (
        f"{plan.quantizer}, blocks of {plan.block_size}, head {plan.head_precision}, "
        f"accuracy level {plan.accuracy_level}"
    )


def _about(size: int) -> str:
    """Return bytes in gigabytes with one digit: no more is known."""
    return f"{size / 1e9:.1f} GB"


def facts_of(plan: ExportPlan, destination: str) -> Iterator[tuple[str, str]]:
    """Yield what is said in one line each."""
    yield "source", f"{plan.name}: {plan.kind}"
    yield "configuration", _configuration(plan)
    yield "parameters", f"{plan.parameters:,}"
    yield "tokenizer", _tokenizer(plan)
    yield "generation", _generation(plan)
    yield "bundle", f"{destination}, target {plan.target}, {plan.layout}, check {plan.check}"
    if plan.integers is not None:
        yield "integers", _integers(plan.integers)
    if plan.text is not None:
        calibrates = plan.integers is not None and plan.integers.reads_text
        yield "text", f"{'calibrates and measures' if calibrates else 'measures'} with {plan.text}"
    yield (
        "memory",
        f"about {_about(plan.peak_bytes)} to export, {_about(plan.peak_bytes_checked)} to check as well",
    )


def fact_table(plan: ExportPlan, destination: str) -> Table:
    """Return the facts as a table without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts_of(plan, destination):
        table.add_row(name, value)
    return table


def _per_token(count: int | None) -> str:
    return "-" if count is None else f"{count:,} B"


def _cache(count: int | None) -> str:
    return "-" if count is None else in_units(count)


def precision_table(plan: ExportPlan) -> Table:
    """Return a line for each precision."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("precision")
    length = f"at {plan.context_length:,} tokens" if plan.context_length else "at the context's end"
    for name in ("weights", "cache a token", length):
        table.add_column(name, justify="right")
    table.add_column("written for this target")
    for line in plan.precisions:
        table.add_row(
            line.precision,
            in_units(line.weights_bytes),
            _per_token(line.cache_bytes_per_token),
            _cache(line.cache_bytes_at_context),
            WRITTEN if line.written else ESTIMATE,
        )
    return table
