"""Measure what docs/positions.md says of positions, draw its figures, and write its numbers into it.

python scripts/plot_positions.py [PART...]

PART is formula, error, memory or perplexity; without one, all are done. Everything is measured anew, the
shipped model too (some minutes); the same versions of the packages on the same machine give the same bytes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from position_study import figures, page
from position_study.encodings import largest_errors, reference, rotated
from position_study.memory import graph_costs, table_costs
from position_study.perplexity import measure

from gpt_onnx.checkpoint import find_shipped

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "positions.md"
IMAGES = ROOT / "docs" / "images"
ERROR_WIDTH = 512
EXPONENTS = range(21)
SHOWN_EXPONENTS = (9, 11, 14, 17, 20)
LENGTHS = (1, 1024)
ROTATION_COUNT = 4096


def say(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def draw(name: str, figure: Callable[[], Figure]) -> None:
    """Write one figure."""
    figures.save(figure, IMAGES / f"positions-{name}.svg")


def formula_blocks() -> Iterator[tuple[str, str]]:
    """What follows from the formula alone."""
    draw("heatmap", figures.heatmap)
    draw("similarity", figures.similarity)
    draw("rotation", figures.rotation)
    yield "divisors", page.divisor_block((8, 64, 512, 768))
    encoding = reference(np.arange(ROTATION_COUNT), 64)
    residual = max(
        float(np.abs(rotated(encoding, step) - reference(np.arange(ROTATION_COUNT) + step, 64)).max())
        for step in (1, 5, 64, 1000)
    )
    products = encoding @ encoding.T
    distances = np.sqrt(np.maximum(np.diag(products)[:, None] + np.diag(products) - 2 * products, 0))
    np.fill_diagonal(distances, np.inf)
    yield "rotation", page.rotation_block(residual, float(distances.min()), ROTATION_COUNT)


def error_blocks() -> Iterator[tuple[str, str]]:
    """How far each way to compute it is from float64."""
    measured = largest_errors(ERROR_WIDTH, EXPONENTS)
    draw("error", partial(figures.errors, measured, EXPONENTS, ERROR_WIDTH))
    yield "errors", page.error_block(measured, EXPONENTS, SHOWN_EXPONENTS)


def memory_blocks() -> Iterator[tuple[str, str]]:
    """What positions cost, learned and computed."""
    costs = table_costs()
    constants, working = zip(*(graph_costs(cost.n_embd, LENGTHS) for cost in costs), strict=True)
    draw("memory", partial(figures.memory, costs, constants))
    yield "memory", page.memory_block(costs)
    yield "running", page.running_block(costs, constants, working, LENGTHS)


def perplexity_blocks() -> Iterator[tuple[str, str]]:
    """How the shipped model does beyond its trained length; nothing where there is no shipped model."""
    folder = find_shipped()
    if folder is None:
        say("there is no shipped model here: its figure and numbers stay as they are")
        return
    measured = measure(folder)
    draw("perplexity", partial(figures.perplexity, measured))
    yield "perplexity", page.perplexity_block(measured)


PARTS: Mapping[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "formula": formula_blocks,
    "error": error_blocks,
    "memory": memory_blocks,
    "perplexity": perplexity_blocks,
}


def main() -> None:
    """Regenerate figures and blocks."""
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := sorted(set(wanted) - set(PARTS)):
        sys.exit(f"{unknown[0]!r} is no part of the page; parts are {', '.join(PARTS)}")
    IMAGES.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # sums in one order, however many cores there are
    text = PAGE.read_text(encoding="utf-8")
    for name, body in itertools.chain.from_iterable(PARTS[part]() for part in wanted):
        say(name)
        text = page.replace_block(text, name, body)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
