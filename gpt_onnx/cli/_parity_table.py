"""The gate's findings as a short table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from gpt_onnx.export.gate import Row


def parity_table(rows: Iterable[Row]) -> Table:
    """Return a table with a line for each group of cases; ratios are in units of float32's own error."""
    table = Table(title="checked against PyTorch", title_justify="left", box=None, header_style="bold")
    table.add_column("compared")
    for name in ("cases", "median", "worst", "worst RMS"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in rows:
        verdict = f"{row.failed} FAILED" if row.failed else "ok"
        cases = f"{row.cases - row.skipped}"
        table.add_row(row.group, cases, _ratio(row.median), _ratio(row.worst), _ratio(row.worst_rms), verdict)
    return table


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
