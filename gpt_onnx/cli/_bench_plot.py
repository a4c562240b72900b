"""A measurement as a picture: tokens/s by context, first token by prompt, and size against quality.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; every line is labelled
where it ends, so that no legend has to be looked up. The same report gives the same bytes of SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.errors import ProviderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpt_onnx.runtime.bench import BenchReport, ContenderReport, PromptReport

SUFFIXES = (".svg", ".png", ".pdf")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#7F7F7F")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h")
LINES: Mapping[str, str] = {"bundle": "-", "peer": ":"}
"""Kind of contender to its line; PyTorch has dashes."""
INK, GRID = "#333333", "#E3E3E3"
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "gpt-onnx",
}
METADATA: Mapping[str, Mapping[str, str | None]] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None},
}
"""What would make two pictures of one report differ."""
PANEL_INCHES, HEIGHT_INCHES = 4.6, 4.2
LABEL_POINTS = 8.0
APART = 1.35  # lines of text between the labels of two lines
MB = 1_000_000


def check_plot(path: Path) -> None:
    """Refuse a file that cannot be drawn.

    Raises:
        click.BadParameter: if its name ends in none of SUFFIXES.
        ProviderError: if matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise click.BadParameter(f"{path} is no picture; let it end in {', '.join(SUFFIXES)}.")
    try:
        import matplotlib  # noqa: F401
    except ImportError as exc:
        raise ProviderError("--plot needs matplotlib; install it with pip install matplotlib.") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """How a contender is drawn in every panel."""

    colour: str
    marker: str
    line: str


def _looks(contenders: Sequence[ContenderReport]) -> dict[str, _Look]:
    return {
        contender.name: _Look(
            colour=COLOURS[index % len(COLOURS)],
            marker=MARKERS[index % len(MARKERS)],
            line=LINES.get(contender.kind, "--"),
        )
        for index, contender in enumerate(contenders)
    }


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Return heights moved as little as it takes for none to be nearer than ``apart`` to the next.

    >>> spread([0.0, 1.0, 10.0], 4.0)
    [-1.5, 2.5, 10.0]
    """
    groups: list[list[int]] = [[index] for index in sorted(range(len(heights)), key=heights.__getitem__)]

    def middle(group: list[int]) -> float:
        return sum(heights[index] for index in group) / len(group)

    def touch(lower: list[int], upper: list[int]) -> bool:
        return middle(upper) - middle(lower) < apart * (len(lower) + len(upper)) / 2

    at = 0
    while at + 1 < len(groups):
        if touch(groups[at], groups[at + 1]):
            groups[at : at + 2] = [groups[at] + groups[at + 1]]
            at = max(0, at - 1)
        else:
            at += 1
    placed = list(heights)
    for group in groups:
        for place, index in enumerate(group):
            placed[index] = middle(group) + apart * (place - (len(group) - 1) / 2)
    return placed


def _label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write each name to the right of its point (x, y, name, colour), none over another."""
    figure = axes.figure
    figure.canvas.draw()  # scales and sizes are known only now
    pixels = figure.dpi / 72  # of a point
    points = [axes.transData.transform((x, y)) for x, y, _, _ in ends]
    heights = spread([float(point[1]) for point in points], APART * LABEL_POINTS * pixels)
    for (x, y, name, colour), point, height in zip(ends, points, heights, strict=True):
        axes.annotate(
            name,
            (x, y),
            xytext=(9, (height - float(point[1])) / pixels),
            textcoords="offset points",
            fontsize=LABEL_POINTS,
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkA": 0, "shrinkB": 4},
        )


def _frame(axes: Axes, title: str, xlabel: str, ylabel: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", pad=10)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


Value = Callable[["PromptReport"], float]


def _lines(axes: Axes, report: BenchReport, value: Value, *, label_names: bool = True) -> None:
    """Draw a line for each contender over the lengths of prompt, of the first number of sequences."""
    looks, ends = _looks(report.contenders), []
    for contender in report.contenders:
        prompts = sorted(
            (p for p in contender.prompts if p.batch_size == report.plan.batch_sizes[0]),
            key=lambda prompt: prompt.prompt_tokens,
        )
        look = looks[contender.name]
        x, y = [p.prompt_tokens for p in prompts], [value(p) for p in prompts]
        axes.plot(x, y, look.line, color=look.colour, marker=look.marker, ms=5, lw=1.8, mec="white", mew=0.7)
        ends.append((x[-1], y[-1], contender.name, look.colour))
    axes.set_xticks(x)
    axes.margins(x=0.06)
    axes.set_ylim(bottom=0)
    _label_ends(axes, ends)


def _speed(axes: Axes, report: BenchReport) -> None:
    rows = report.plan.batch_sizes[0]
    several = "" if rows == 1 else f", {rows} sequences"
    _frame(axes, "Decoding", "context, tokens", f"tokens per second{several}")
    _lines(axes, report, lambda prompt: prompt.decode_tokens_per_s)


def _first_token(axes: Axes, report: BenchReport) -> None:
    _frame(axes, "Time to the first token", "prompt, tokens", "milliseconds")
    _lines(axes, report, lambda prompt: prompt.ttft_ms.median)


def _is_known(contender: ContenderReport) -> bool:
    return contender.file_bytes is not None and contender.kl is not None


def _quality(axes: Axes, report: BenchReport) -> None:
    _frame(axes, "Size and quality", "size on disk, MB", "KL divergence from fp32, nats per token")
    looks, ends = _looks(report.contenders), []
    for contender in filter(_is_known, report.contenders):
        assert contender.file_bytes is not None
        assert contender.kl is not None
        look, x = looks[contender.name], contender.file_bytes / MB
        axes.plot(x, contender.kl, look.marker, color=look.colour, ms=8, mec="white", mew=0.7)
        ends.append((x, contender.kl, contender.name, look.colour))
    axes.margins(x=0.12, y=0.15)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    _label_ends(axes, ends)


def _caption(report: BenchReport) -> str:
    plan, environment = report.plan, report.environment
    versions = environment.versions
    known = [f"{name} {versions[name]}" for name in ("gpt-onnx", "onnxruntime", "torch") if name in versions]
    threads = f"{environment.threads} thread{'s' if environment.threads > 1 else ''}"
    return (
        f"{environment.cpu}, {threads}; median of {plan.repetitions} bursts of {plan.new_tokens} tokens, "
        f"each contender in its own process, in turn; {', '.join(known)}"
    )


def draw(report: BenchReport, path: Path) -> None:
    """Draw a report into a file, of the kind that its name ends in; ``check_plot`` has seen the name."""
    import matplotlib
    from matplotlib.figure import Figure

    panels = [_speed, _first_token, *([_quality] if any(map(_is_known, report.contenders)) else [])]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(PANEL_INCHES * len(panels), HEIGHT_INCHES), dpi=150)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            panel(axes, report)
        figure.savefig(path, metadata=dict(METADATA[path.suffix.lower()]))
