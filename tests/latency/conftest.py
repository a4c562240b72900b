"""The model that ships, or one of its size with random weights, and ratios that settle.

No test here looks at seconds: only at the ratio of two things that were measured in turns in one run. A
machine that is busy with something else can disturb a few turns, so a ratio that is too low is measured
again, and the turns of all runs count together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.config import named_config

MOST_RUNS = 3

Settle = Callable[[Callable[[], Sequence[float]], float], float]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped checkpoint; outside of a clone, random weights of its configuration."""
    import torch

    from gpt_onnx.checkpoint import find_shipped, write_checkpoint
    from gpt_onnx.model import GPT

    shipped = find_shipped()
    if shipped is not None:
        return shipped
    torch.manual_seed(0)
    config, path = named_config("sotu"), tmp_path_factory.mktemp("latency") / "random"
    write_checkpoint(path, config, GPT(config).state_dict())
    return path


@pytest.fixture(scope="session")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Exports the checkpoint, unchecked, once for each set of options."""
    from gpt_onnx.export import export_bundle

    made: dict[str, Path] = {}

    def export(**options: Any) -> Path:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = tmp_path_factory.mktemp("bundle") / "bundle"
            export_bundle(checkpoint, made[key], check="none", **options)
        return made[key]

    return export


@pytest.fixture(scope="session")
def settle() -> Settle:
    """Repeats a measurement of ratios until the median of all reaches a bound, or MOST_RUNS are done."""

    def settle(measure: Callable[[], Sequence[float]], bound: float) -> float:
        ratios: list[float] = []
        for _ in range(MOST_RUNS):
            ratios += measure()
            if np.median(ratios) >= bound:
                break
        return float(np.median(ratios))

    return settle


@pytest.fixture(scope="session")
def threads() -> int:
    """The cores that this process may use, at most 4: these models are small."""
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, 4)
