"""The contenders that a command names: bundles, the PyTorch program that they came from, peers."""

from __future__ import annotations

import importlib.util
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpt_onnx._paths import real_path
from gpt_onnx.errors import InputError, ProviderError

from .entrant import BUNDLE, COMPILED, EAGER, Entrant, Program

EAGER_NAME, COMPILED_NAME = "eager PyTorch", "compiled PyTorch"
BUNDLE_PROGRAM = Program(module="gpt_onnx.runtime.bench.bundle_contender")
EAGER_PROGRAM = Program(module="gpt_onnx.eager_contender")
COMPILERS = ("c++", "g++", "clang++", "cl")


def bundle_entrants(bundles: Sequence[str | Path]) -> list[Entrant]:
    """Name bundles after their folders, or by their whole paths where two folders have one name."""
    names = [real_path(bundle).name for bundle in bundles]
    return [
        Entrant(
            name=name if names.count(name) == 1 else str(bundle),
            kind=BUNDLE,
            program=BUNDLE_PROGRAM,
            source=str(bundle),
        )
        for name, bundle in zip(names, bundles, strict=True)
    ]


def _check_torch(compiled: bool) -> None:
    if importlib.util.find_spec("torch") is None:
        raise ProviderError("eager PyTorch needs torch; install it with pip install 'gpt-onnx[cpu,export]'.")
    if compiled and not any(map(shutil.which, COMPILERS)):
        raise ProviderError(
            f"torch.compile needs a C++ compiler and none of {', '.join(COMPILERS)} is here; install one, or "
            "measure eager PyTorch alone."
        )


def pytorch_entrants(
    source: str | Path | None, described: Mapping[str, Any], *, compiled: bool = False
) -> list[Entrant]:
    """Return eager PyTorch, and compiled if asked for; none without a source.

    Raises:
        ProviderError: if torch, or the compiler that it needs, is not installed.
        InputError: if it is to be compiled and there is no source.
    """
    if source is None:
        if compiled:
            raise InputError("compiled PyTorch needs the weights; name a checkpoint to measure against.")
        return []
    _check_torch(compiled)
    kinds = [(EAGER_NAME, EAGER, described), (COMPILED_NAME, COMPILED, {**described, "compiled": True})]
    return [
        Entrant(name=name, kind=kind, program=EAGER_PROGRAM, source=str(source), options=options)
        for name, kind, options in kinds[: 1 + compiled]
    ]


def check_names(entrants: Iterable[Entrant]) -> None:
    """Refuse two contenders of one name: a report could not tell them apart.

    Raises:
        InputError: if two have one name, or there is none.
    """
    counts = Counter(entrant.name for entrant in entrants)
    if not counts:
        raise InputError("there is no bundle to measure; name at least one.")
    name, count = counts.most_common(1)[0]
    if count > 1:
        raise InputError(f"{count} contenders are called {name}; give each a name of its own.")
