"""Other ways to run the same graph, for the deep level: other numbers of threads, no graph optimisation.

A graph whose numbers are right only after ONNX Runtime's rewrites, or only on one thread, is not right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpt_onnx.bundle import open_bundle
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime._arguments import counted

from .bare import BareEngine, BareGraph
from .case import Case, Engine, Setting
from .turns import Turn, TurnEngine, Turns
from .whole import check_rows

EngineMaker = Callable[[Path, str], Engine]


def _with_threads(count: int) -> EngineMaker:
    return lambda path, provider: OnnxGPT.load(path, provider=provider, threads=count, check_hashes=False)


def _unoptimised(path: Path, provider: str) -> Engine:
    return BareEngine(BareGraph(open_bundle(path, check_hashes=False), provider, optimised=False))


VARIANTS: Mapping[str, EngineMaker] = {
    "one thread": _with_threads(1),
    "two threads": _with_threads(2),
    "no graph optimisation": _unoptimised,
}


def variant_cases(setting: Setting, bundle: OnnxGPT, turns: Turns) -> Iterator[Case]:
    """A few lengths of the largest batch, in each variant that the level names."""
    batch, every = setting.batches[-1], setting.lengths
    for variant in setting.level.variants:
        turn = Turn(open=partial(VARIANTS[variant], bundle.bundle.path, bundle.provider))
        varied = replace(setting, engine=TurnEngine(turns, turn))
        for length in dict.fromkeys((every[0], every[len(every) // 2], every[-1])):
            rows = [row[:length] for row in setting.rows(batch)]
            run = partial(check_rows, varied, rows)
            yield Case(
                group="variants", name=f"{variant}, {counted(length, 'token')}, batch {batch}", run=run
            )
