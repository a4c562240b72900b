"""The figures. Each takes what was measured and returns a matplotlib figure; ``save`` writes equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from gpt_onnx.model.positions import divisors

from .encodings import reference, rotated
from .memory import TableCost
from .perplexity import PIECES, PositionLosses

STYLE: Any = {
    "svg.hashsalt": "gpt-onnx",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "legend.fontsize": 8,
}
BLUE, ORANGE, GREEN, GREY = "#2468b0", "#d9601a", "#2b8a5b", "#777777"
BINS_IN_PIECE = 4
LINES: Mapping[str, tuple[str, str, str]] = {
    "float32 angle, eager": (ORANGE, "-", "o"),
    "float32 angle, graph": (ORANGE, "--", "x"),
    "float64, Python constants, eager": (GREY, "-", "o"),
    "float64, Python constants, graph": (GREY, "--", "x"),
    "gpt-onnx, eager": (BLUE, "-", "o"),
    "gpt-onnx, graph": (BLUE, "--", "x"),
    "gpt-onnx without float64 (angle sums)": (GREEN, "-", "s"),
}


def save(draw: Callable[[], Figure], path: Path) -> None:
    """Draw in our style and write an SVG without dates or versions: the same input gives the same bytes."""
    with mpl.rc_context(STYLE):
        figure = draw()
        figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")


def heatmap() -> Figure:
    """Draw the encoding of 128 positions in 64 columns."""
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.subplots()
    image = axes.imshow(
        reference(np.arange(128), 64), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest"
    )
    axes.set(xlabel="column (even: sine, odd: cosine)", ylabel="position", title="PE, n_embd = 64")
    figure.colorbar(image, ax=axes, label="value")
    return figure


def similarity() -> Figure:
    """Draw how alike the encodings of two positions are: by both positions, and by their distance."""
    n_embd, count = 64, 128
    encoding = reference(np.arange(count), n_embd)
    figure = Figure(figsize=(8.4, 3.6))
    (left, right) = figure.subplots(1, 2, width_ratios=(1, 1.15))
    image = left.imshow(2 / n_embd * encoding @ encoding.T, cmap="viridis", vmin=0, vmax=1)
    left.set(xlabel="position q", ylabel="position p", title="PE(p) . PE(q) / (n_embd / 2)")
    figure.colorbar(image, ax=left, fraction=0.046)
    distances = np.arange(count)
    for start, colour, width in ((0, BLUE, 4.0), (1000, ORANGE, 2.0), (100_000, "black", 0.8)):
        others = reference(start + distances, n_embd)
        right.plot(distances, 2 / n_embd * others @ others[0], color=colour, lw=width, label=f"p = {start:,}")
    right.set(xlabel="distance q - p", title="the same, by distance: one curve for every p")
    right.legend(title="from")
    return figure


def rotation() -> Figure:
    """Draw three pairs as points of the unit circle, and what a step of two positions does to them."""
    n_embd, count, step = 64, 20, 2
    encoding = reference(np.arange(count), n_embd)
    moved = rotated(encoding, step)
    figure = Figure(figsize=(8.4, 2.9))
    panels = figure.subplots(1, 3)
    for axes, pair in zip(panels, (0, 4, 8), strict=True):
        sine, cosine = 2 * pair, 2 * pair + 1
        points = axes.scatter(
            encoding[:, cosine], encoding[:, sine], c=np.arange(count), cmap="viridis", s=14, zorder=3
        )
        for start, colour in ((0, BLUE), (7, ORANGE), (14, "black")):
            tail, head = encoding[start, [cosine, sine]], moved[start, [cosine, sine]]
            arrow = {"arrowstyle": "->", "color": colour, "lw": 1.4}
            axes.annotate("", xy=head, xytext=tail, arrowprops=arrow)
        axes.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        axes.set_title(f"columns {sine}, {cosine}: {np.degrees(step / divisors(n_embd)[pair]):.0f} degrees")
        axes.set_xlabel("cosine")
    panels[0].set_ylabel("sine")
    figure.colorbar(points, ax=panels, label="position", fraction=0.02, ticks=[0, 5, 10, 15])
    return figure


def errors(measured: Mapping[str, Sequence[float]], exponents: range, n_embd: int) -> Figure:
    """Draw each way's largest error against the position, both logarithmic."""
    figure = Figure(figsize=(6.8, 4.2))
    axes = figure.subplots()
    positions = [2**exponent for exponent in exponents]
    for label, values in measured.items():
        colour, dashes, marker = LINES[label]
        axes.plot(positions, values, dashes, color=colour, marker=marker, ms=4, lw=1.2, label=label)
    axes.axhline(2e-6, color="black", lw=0.8, ls=":")
    axes.text(2**20, 2.2e-6, "promised: 2e-6", ha="right", va="bottom", fontsize=8)
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="position", ylabel="largest distance from float64")
    axes.set_title(f"error of the encoding, n_embd = {n_embd}")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.98))
    return figure


def memory(costs: Sequence[TableCost], constants: Sequence[int]) -> Figure:
    """Draw the bytes that positions take in memory: a learned table, and the constants of the formula."""
    figure = Figure(figsize=(7.8, 3.4))
    axes = figure.subplots()
    at = np.arange(len(costs))
    for offset, colour, label, values in (
        (-0.2, ORANGE, "learned: the table, float32", [4 * cost.parameters for cost in costs]),
        (0.2, BLUE, "sinusoidal: constants in the graph (0 parameters)", list(constants)),
    ):
        bars = axes.bar(at + offset, values, 0.4, color=colour, label=label)
        axes.bar_label(bars, [f"{value / 1e3:,.0f} kB" for value in values], fontsize=7, padding=1)
    axes.set(yscale="log", ylabel="bytes", ylim=(1e3, 2e9))
    axes.set_xticks(
        at, [f"{cost.name.removesuffix('-learned')}\n{cost.context_length} x {cost.n_embd}" for cost in costs]
    )
    axes.legend(loc="upper left")
    return figure


def _bins(measured: PositionLosses) -> Iterator[tuple[int, int]]:
    width = measured.losses.shape[1] // (PIECES * BINS_IN_PIECE)
    for start in range(0, measured.losses.shape[1], width):
        yield start, start + width


def perplexity(measured: PositionLosses) -> Figure:
    """Draw perplexity by position: quartiles of the rows, all rows together, and blind guessing."""
    bins = list(_bins(measured))
    middle = [(start + stop) / 2 for start, stop in bins]
    low, median, high = zip(*(measured.quartiles(*edges) for edges in bins), strict=True)
    pooled: NDArray[np.float64] = np.array([measured.perplexity(*edges) for edges in bins])
    figure = Figure(figsize=(6.8, 4.0))
    axes = figure.subplots()
    axes.axvspan(0, measured.context_length, color=GREEN, alpha=0.1, lw=0, label="trained length")
    axes.fill_between(middle, low, high, color=BLUE, alpha=0.2, lw=0, label="quartiles")
    axes.plot(middle, median, color=BLUE, marker="o", ms=3, label="median of rows")
    axes.plot(middle, pooled, color="black", lw=1, ls="--", label="all tokens together")
    axes.axhline(measured.unigram, color=GREY, lw=1, ls=":", label="guessing by word frequency")
    axes.set(xlabel="position", ylabel="perplexity of the next token", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(0, measured.losses.shape[1] + 1, measured.context_length))
    axes.set_title("the shipped model by position, the same tokens in every eighth")
    axes.legend(loc="lower right")
    return figure
