"""A measurement as a picture: tokens/s by context, first token by prompt, and size against quality.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; every line is labelled
where it ends, so that no legend has to be looked up. The same report gives the same bytes of SVG.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt_onnx.cli._result_file import Kind, check_result_file, write_result_file
from gpt_onnx.errors import ProviderError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpt_onnx.runtime.bench import BenchReport, ContenderReport, PromptReport

KINDS: Mapping[str, Kind] = {
    ".svg": Kind(words="an SVG picture", start=re.compile(rb"(?s)(\xef\xbb\xbf)?(<\?xml.*?)?<svg\s")),
    ".png": Kind(words="a PNG picture", start=re.compile(rb"\x89PNG\r\n\x1a\n")),
    ".pdf": Kind(words="a PDF file", start=re.compile(rb"%PDF-")),
}
"""What is drawn, by the ending of a file's name."""
OURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
OTHERS = ("#000000", "#888888", "#56B4E9", "#E69F00")
"""Colours of bundles, and of what they are measured against; marks tell apart those that share one."""
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h", "<", ">")
LINES: Mapping[str, str] = {"bundle": "-", "peer": ":"}
"""Kind of contender to its line; PyTorch has dashes."""
INK, PALE, GRID = "#222222", "#666666", "#E6E6E6"
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.edgecolor": "#999999",
    "text.color": INK,
    "axes.labelcolor": PALE,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "svg.hashsalt": "gpt-onnx",
}
METADATA: Mapping[str, Mapping[str, str | None]] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None},
}
"""What would make two pictures of one report differ."""
LEFT, WIDTH, RIGHT = 0.55, 2.5, 1.3  # inches of a panel: numbers, lines, names
BELOW, HEIGHT, ABOVE = 0.85, 2.9, 0.65
LABEL_POINTS = 8.5
APART = 1.3  # lines of text between the labels of two lines
LETTER = 0.62  # width of a letter, of its height
MB = 1_000_000


def check_plot(path: Path) -> None:
    """Refuse a file that cannot be drawn.

    Raises:
        click.BadParameter: if its name ends in none of KINDS.
        BundleError, InputError: if the file must not be written; see check_result_file.
        ProviderError: if matplotlib is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in KINDS:
        raise click.BadParameter(f"{path} is no picture; let it end in {', '.join(KINDS)}.")
    check_result_file(path, KINDS[suffix])
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
    colours = {True: itertools.cycle(OURS), False: itertools.cycle(OTHERS)}
    return {
        contender.name: _Look(
            colour=next(colours[contender.kind == "bundle"]),
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


End = tuple[float, float, str, str]
"""A point in the units of the axes, and the name and the colour of the contender that it stands for."""


def _pixels(axes: Axes, ends: Sequence[End]) -> list[tuple[float, float]]:
    """Return where points are, in points of 1/72 inch."""
    axes.figure.canvas.draw()  # scales are known only now
    scale = axes.figure.dpi / 72
    placed = (axes.transData.transform((x, y)) / scale for x, y, _, _ in ends)
    return [(float(x), float(y)) for x, y in placed]


def _write(axes: Axes, end: End, right: float, up: float) -> None:
    """Write a name beside its point, so many points to the right and up, with a line between them."""
    x, y, name, colour = end
    axes.annotate(
        name,
        (x, y),
        xytext=(right, up),
        textcoords="offset points",
        fontsize=LABEL_POINTS,
        fontweight="bold" if colour in OURS else "normal",
        va="center",
        annotation_clip=False,
        arrowprops={
            "arrowstyle": "-",
            "color": colour,
            "lw": 0.8,
            "shrinkA": 1,
            "shrinkB": 4,
            "relpos": (0, 0.5),
        },
    )


def _label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Write each name to the right of where its line ends, none over another."""
    heights = [y for _, y in _pixels(axes, ends)]
    for end, height, place in zip(ends, heights, spread(heights, APART * LABEL_POINTS), strict=True):
        _write(axes, end, 16, place - height)


def _label_points(axes: Axes, ends: Sequence[End]) -> None:
    """Write each name beside its point, as near as there is room."""
    pixels, taken = _pixels(axes, ends), list[tuple[float, float, float]]()
    floor = 72 / axes.figure.dpi * axes.bbox.y0
    taken += [(x - 5, x + 5, y) for x, y in pixels]  # the marks: left, right, height
    for end, (x, y) in zip(ends, pixels, strict=True):
        left, right = x + 9, x + 9 + LETTER * LABEL_POINTS * len(end[2])

        def is_free(up: float, y: float = y, left: float = left, right: float = right) -> bool:
            return y + up >= floor - 2 and all(  # below are numbers
                abs(y + up - height) >= APART * LABEL_POINTS or right < start or left > stop
                for start, stop, height in taken
            )

        lines = (sign * count * APART * LABEL_POINTS for count in range(20) for sign in (1, -1))
        up = next(filter(is_free, lines), 0.0)
        taken.append((left, right, y + up))
        _write(axes, end, 9, up)


def _frame(axes: Axes, title: str, unit: str, xlabel: str) -> None:
    axes.text(0, 1.13, title, transform=axes.transAxes, fontsize=11, fontweight="bold")
    axes.text(0, 1.05, unit, transform=axes.transAxes, color=PALE)
    axes.set_xlabel(xlabel)
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


Value = Callable[["PromptReport"], float]


def _lines(axes: Axes, report: BenchReport, value: Value) -> None:
    """Draw a line for each contender over the lengths of prompt, of the first number of sequences."""
    looks, ends, lengths = _looks(report.contenders), list[End](), set[int]()
    for contender in report.contenders:
        points = sorted(
            (prompt.prompt_tokens, value(prompt))
            for prompt in contender.prompts
            if prompt.batch_size == report.plan.batch_sizes[0]
        )
        if points:
            look = looks[contender.name]
            axes.plot(
                *zip(*points, strict=True),
                look.line,
                color=look.colour,
                marker=look.marker,
                ms=5.5,
                lw=1.8,
                mec="white",
                mew=0.7,
                clip_on=False,
            )
            ends.append((*points[-1], contender.name, look.colour))
            lengths |= {length for length, _ in points}
    axes.set_xticks(sorted(lengths))
    axes.set_ylim(bottom=0)
    _label_ends(axes, ends)


def _speed(axes: Axes, report: BenchReport) -> None:
    rows = report.plan.batch_sizes[0]
    several = "" if rows == 1 else f", {rows} sequences at once"
    _frame(axes, "Decoding", f"tokens per second{several} (more is better)", "context, tokens")
    _lines(axes, report, lambda prompt: prompt.decode_tokens_per_s)


def _first_token(axes: Axes, report: BenchReport) -> None:
    _frame(axes, "Time to the first token", "milliseconds (less is better)", "prompt, tokens")
    _lines(axes, report, lambda prompt: prompt.ttft_ms.median)


def _is_known(contender: ContenderReport) -> bool:
    return contender.file_bytes is not None and contender.kl is not None


def _quality(axes: Axes, report: BenchReport) -> None:
    _frame(
        axes, "Size and quality", "KL divergence from fp32, nats a token (less is better)", "size on disk, MB"
    )
    looks, ends = _looks(report.contenders), list[End]()
    for contender in filter(_is_known, report.contenders):
        assert contender.file_bytes is not None
        assert contender.kl is not None
        look, x = looks[contender.name], contender.file_bytes / MB
        axes.plot(x, contender.kl, look.marker, color=look.colour, ms=8, mec="white", mew=0.7, clip_on=False)
        ends.append((x, contender.kl, contender.name, look.colour))
    axes.set_xlim(0, 1.1 * max(end[0] for end in ends))
    top = 1.1 * max(end[1] for end in ends)
    axes.set_ylim(-top / 14, top)  # marks at 0 stand clear of the numbers below
    axes.locator_params(axis="y", nbins=6)
    _label_points(axes, ends)


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
    """Draw a report into a file, of the kind that its name ends in; ``check_plot`` has seen the name.

    Raises:
        BundleError, InputError: if the file must not or cannot be written; see write_result_file.
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels = [
        _speed,
        _first_token,
        *([_quality] if any(contender.kl for contender in filter(_is_known, report.contenders)) else []),
    ]
    column = LEFT + WIDTH + RIGHT
    width, height = column * len(panels), BELOW + HEIGHT + ABOVE
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), dpi=150)
        for index, panel in enumerate(panels):
            left = (index * column + LEFT) / width
            panel(figure.add_axes((left, BELOW / height, WIDTH / width, HEIGHT / height)), report)
        figure.text(LEFT / 2 / width, 0.12 / height, _caption(report), fontsize=7.5, color=PALE)
        suffix = path.suffix.lower()
        save = partial(figure.savefig, format=suffix[1:], metadata=dict(METADATA[suffix]))
        write_result_file(path, KINDS[suffix], save)
