"""A bundle in float16, and what it is compared with.

    reference = HalfReference(source, bundle_folder)
    run_gate(bundle_folder, reference)

As for integer weights, three questions, each held to its own bound:

    are the stored weights the source's?   ``weight_cases``: each rounded to the nearest float16, bit for bit
    does the graph compute with them?      the usual cases, against the source's program with these weights in
                                           float64; the unit is what float16 costs the same program where the
                                           graph has it, in factors and results of products and in the cache
                                           (gpt_onnx.export.gate.half_products)
    and nothing else?                      the same graph with float32 for float16, in units of float32
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpt_onnx.bundle import open_bundle
from gpt_onnx.runtime._arguments import counted

from .case import Case, Finding
from .exact import exact_cases
from .half_exact import single_bundle
from .half_products import HALVES
from .mapped import reading_cases
from .original import original_cases
from .reference import Others
from .rewritten import RewrittenReference
from .trial import Trial
from .weights import GROUP, check_float, first_fault

if TYPE_CHECKING:
    from gpt_onnx.export.gpt_source import Source

Array = NDArray[Any]


def stored_floats(folder: Path) -> dict[str, Array]:
    """Return every floating-point tensor of a bundle by the graph's name for it, mapped."""
    bundle = open_bundle(folder, check_hashes=False)
    models = [ir.load(bundle.graph_path(role)) for role in bundle.manifest.graph.graphs]
    return {
        name: value.const_value.numpy()
        for model in models
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.dtype.is_floating_point()
    }


def halved(weight: Array) -> Array:
    """Return the nearest float16 of each number."""
    with np.errstate(over="ignore"):  # infinity is refused where it is written
        return weight.astype(np.float16)


class HalfReference(RewrittenReference):
    """The source's program with its weights rounded to float16; see the module and Reference.

    Args:
        source: What the bundle was made from.
        folder: The bundle.

    Raises:
        BundleError: if its graphs cannot be read.
    """

    def __init__(self, source: Source, folder: Path) -> None:
        self._source = source
        self.stored = stored_floats(folder)
        self._names = _names_of(source, self.stored)
        halves = {name for name, graph in self._names.items() if self._is_half(graph)}
        original = source.reference()
        program = original.with_weights(Others(names=frozenset(halves), read=self._read, rounding=HALVES))
        super().__init__(original, program, f"{original.name} with its weights in float16")

    @property
    def cost(self) -> str:
        """See Reference."""
        return "float16 in products and the cache"

    def _is_half(self, graph: str) -> bool:
        return graph in self.stored and self.stored[graph].dtype == np.float16

    def _read(self, name: str) -> Tensor:
        """Return a weight rounded to float16, in float32 and as the source's program has it."""
        return torch.from_numpy(halved(self._source.weight(name)).astype(np.float32))

    def own_cases(self, trial: Trial) -> Iterator[Case]:
        """See Reference."""
        yield from original_cases(trial.setting, trial.original, self.original)
        yield from self.weight_cases()
        yield from reading_cases(self.original, trial.setting)
        folder = trial.stack.enter_context(single_bundle(trial.bundle.bundle))
        yield from exact_cases(trial.setting, trial.beside(folder))

    def weight_cases(self) -> Iterator[Case]:
        """Look at every weight that is stored."""
        name = f"{counted(len(self._names), 'weight')} beside the source's"
        yield Case(group=GROUP, name=name, run=partial(_finding, self))

    def faults(self) -> Iterator[str | None]:
        """Yield what is wrong with each weight; None where nothing is."""
        for name, graph in self._names.items():
            if graph not in self.stored:
                yield f"{name} is nowhere in the bundle" if self._source.config is not None else None
                continue
            fault = check_half(self._source.weight(name), self.stored[graph])
            yield None if fault is None else f"{name} {fault}"


def _names_of(source: Source, stored: Mapping[str, Array]) -> dict[str, str]:
    """Return the source's name of each weight with the graph's."""
    return {name: name if name in stored else graph for graph, name in source.parameter_names().items()}


def _finding(reference: HalfReference) -> Finding:
    return Finding(fault=first_fault(reference.faults()))


def check_half(weight: Array, stored: Array) -> str | None:
    """Say what is wrong with a weight that is stored in float16, or in float32 where it is no matrix."""
    if stored.dtype == np.float32:
        return check_float(weight, stored) if weight.ndim < 2 else "is float32; a matrix is float16"
    rounded = halved(weight)
    if any(stored.shape == form.shape and np.array_equal(stored, form) for form in (rounded, rounded.T)):
        return None
    return f"is float16 {list(stored.shape)} and not the source's {list(weight.shape)} to the nearest"
