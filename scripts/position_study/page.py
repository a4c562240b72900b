"""The parts of docs/positions.md that hold measured numbers, and how they get into the page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from gpt_onnx.model.positions import divisors

from .memory import FLOAT16_BYTES, FLOAT32_BYTES, TableCost
from .perplexity import PIECES, PositionLosses, verdict

WIDTH = 118


def replace_block(page: str, name: str, body: str) -> str:
    """Return the page with the text between the markers of ``name`` replaced.

    Raises:
        ValueError: if the page does not have the two markers exactly once.
    """
    pattern = re.compile(rf"(<!-- begin {name}:[^\n]* -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"the page needs the markers of {name!r} exactly once")
    return pattern.sub(lambda match: f"{match[1]}\n{body.strip()}\n\n{match[2]}", page)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, its first column on the left and the others on the right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def paragraph(text: str) -> str:
    """Break a paragraph into lines as the rest of the page is broken."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def size(count: int) -> str:
    """Write a number of bytes in the unit that fits."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count} B"


def divisor_block(widths: Sequence[int]) -> str:
    """Tabulate the divisors of each width: all of them where they are few, else the first and the last."""
    rows = []
    for n_embd in widths:
        shown = [f"{value:,.6g}" for value in divisors(n_embd)]
        shown = shown if len(shown) <= 4 else [*shown[:3], "...", shown[-1]]
        rows.append([str(n_embd), ", ".join(shown)])
    return table(["n_embd", "divisors"], rows)


def error_block(measured: Mapping[str, Sequence[float]], exponents: range, shown: Sequence[int]) -> str:
    """Tabulate each way's largest error up to the shown exponents."""
    columns = [exponents.index(exponent) for exponent in shown]
    rows = [
        [label, *(f"{max(values[: column + 1]):.1e}" for column in columns)]
        for label, values in measured.items()
    ]
    return table(["largest error at positions up to", *(f"2^{exponent}" for exponent in shown)], rows)


def rotation_block(residual: float, smallest_distance: float, count: int) -> str:
    """Say how exactly the rotation holds, and how far apart the nearest two of ``count`` rows are."""
    return paragraph(
        f"Measured in float64: rotating PE(0..{count - 1}) by 1, 5, 64 and 1,000 positions and computing "
        f"those positions afresh differ by {residual:.0e} at most. The nearest two of the first "
        f"{count:,} rows (n_embd 64) are {smallest_distance:.2f} apart."
    )


def memory_block(costs: Sequence[TableCost]) -> str:
    """Tabulate what the learned table takes in each configuration."""
    rows = [
        [
            f"`{cost.name}`",
            f"{cost.context_length:,} x {cost.n_embd:,}",
            f"{cost.parameters:,}",
            size(FLOAT32_BYTES * cost.parameters),
            size(FLOAT16_BYTES * cost.parameters),
            f"{100 * cost.share:.2f} %",
            "0",
        ]
        for cost in costs
    ]
    header = ["configuration", "table", "parameters", "float32", "float16", "of the model", "sinusoidal"]
    return table(header, rows)


def running_block(
    costs: Sequence[TableCost],
    constants: Sequence[int],
    working: Sequence[Sequence[int]],
    lengths: Sequence[int],
) -> str:
    """Tabulate what positions take in a running graph: held all the time, and while a step computes them."""
    header = ["configuration", "learned: held", "sinusoidal: held"]
    header += [f"sinusoidal: at work, {length:,} token{'s' * (length > 1)}" for length in lengths]
    rows = [
        [f"`{cost.name}`", size(FLOAT32_BYTES * cost.parameters), size(held), *map(size, peaks)]
        for cost, held, peaks in zip(costs, constants, working, strict=True)
    ]
    return table(header, rows)


def perplexity_block(measured: PositionLosses) -> str:
    """Tabulate perplexity by position, and say in words what it shows."""
    width = measured.losses.shape[1] // PIECES
    spans = [(start, start + width) for start in range(0, measured.losses.shape[1], width)]
    trained = measured.perplexity(*spans[1])
    rows = []
    for start, stop in spans:
        value = measured.perplexity(start, stop)
        low, median, high = measured.quartiles(start, stop)
        quartiles = f"{low:,.1f} to {high:,.1f}"
        rows.append(
            [
                f"{start:,} to {stop - 1:,}",
                f"{value:,.1f}",
                f"{median:,.1f}",
                quartiles,
                f"{value / trained:.2f}",
            ]
        )
    header = [
        "positions",
        "perplexity",
        "median",
        "quartiles",
        f"times that at {spans[1][0]} to {spans[1][1] - 1}",
    ]
    return f"{table(header, rows)}\n\n{_in_words(measured, spans, trained)}"


def _in_words(measured: PositionLosses, spans: Sequence[tuple[int, int]], trained: float) -> str:
    tokens = measured.losses.shape[0] * (spans[0][1] - spans[0][0])
    told = []
    for factor in range(2, PIECES // 2 + 1):
        start, stop = spans[2 * factor - 2][0], spans[2 * factor - 1][1]
        ratio = measured.perplexity(start, stop) / trained
        told.append(f"at {start:,} to {stop - 1:,} it is {verdict(ratio)} ({ratio:.2f} times)")
    return paragraph(
        f"The model of weights `{measured.weights}`, {tokens:,} tokens in each row, the same ones. In the "
        f"second half of its trained length its perplexity is {trained:,.1f}; {'; '.join(told)}. Guessing "
        f"by word frequency alone gives {measured.unigram:,.0f}."
    )
