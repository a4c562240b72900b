"""Perplexity, and how far a model is from another, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from gpt_onnx._figures import decimals, exponential, significant, with_error

if TYPE_CHECKING:
    from gpt_onnx.runtime.quality import Comparison, Estimate, Evaluation, Perplexity

QUANTILES = {"median": "median", "90 %": "p90", "95 %": "p95", "99 %": "p99", "99.9 %": "p99_9", "max": "max"}
"""Of the divergence: what they are called, and the fields of a Distribution."""


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for index, name in enumerate(("", *columns)):
        table.add_column(name, justify="right" if index else "left", overflow="fold")
    return table


def _told(estimate: Estimate, digits: int = 4, unit: str = "", factor: float = 1) -> str:
    return with_error(factor * estimate.value, factor * estimate.error, digits, unit)


def _told_exp(estimate: Estimate, digits: int = 4) -> str:
    return exponential(estimate.value, estimate.error, digits)


def _small(value: float) -> str:
    return f"{value:.3g}" if value < 1e-3 else decimals(value, 4)


def perplexity_table(models: dict[str, Perplexity]) -> Table:
    """Return a column for each model, by name."""
    table = _table("how well the text is predicted", *models)
    table.add_row("perplexity", *(_told_exp(model.nll, 2) for model in models.values()))
    table.add_row("nats a token", *(_told(model.nll) for model in models.values()))
    bits = [model.bits_per_byte for model in models.values()]
    if None not in bits:
        table.add_row("bits per byte", *(decimals(value, 4) for value in bits if value is not None))
    return table


def comparison_table(found: Comparison, base: str) -> Table:
    """Return how far a model is from its base, a line for each figure."""
    table = _table(f"beside {base}", "value")
    table.add_row("perplexity ratio", _told_exp(found.ln_ratio))
    mean = found.kl.mean
    table.add_row("KL divergence, nats: mean", f"{_small(mean.value)} +- {significant(mean.error)}")
    for name, field in QUANTILES.items():
        table.add_row(f"  {name}", _small(getattr(found.kl, field)))
    table.add_row("same most likely token", _told(found.same_top, 2, " %", 100))
    table.add_row("right token's probability, RMS change", _told(found.rms_change, 3, " %", 100))
    return table


def evaluation_tables(found: Evaluation) -> list[Table]:
    """Return what ``gpt-onnx eval`` shows."""
    if found.comparison is None or found.against is None:
        return [perplexity_table({found.bundle: found.perplexity})]
    base, comparison = found.against, found.comparison
    if base == found.bundle:
        base = f"{base} (base)"
    models = {found.bundle: comparison.test, base: comparison.base}
    return [perplexity_table(models), comparison_table(comparison, base)]


def about(found: Evaluation) -> str:
    """Return what was measured, as a line."""
    model = found.perplexity
    size = "" if model.text_bytes is None else f" ({model.text_bytes:,} bytes)"
    tokens = "1 token" if model.tokens == 1 else f"{model.tokens:,} tokens"
    return f"{found.text}: {tokens}{size}, in windows of {found.window}"
