"""A bundle with quantised weights, and what it is compared with.

    reference = quantized_reference(source, bundle_folder)
    run_gate(bundle_folder, reference)

Three questions, each held to its own bound:

    are the stored weights the source's?   ``weight_cases``; gpt_onnx.export.gate.weights
    is the source read rightly?            ``reading_cases`` and numbers that its own program wrote, beside
                                           our program with the source's weights
    does the graph compute with them?      the usual cases, against the source's program with these very
                                           weights, dequantised; gpt_onnx.export.gate.exact
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpt_onnx.bundle import QuantizationInfo, open_bundle
from gpt_onnx.errors import BundleError
from gpt_onnx.export.quantize.quantized import Quantized
from gpt_onnx.export.quantize.quantizers import QUANTIZERS
from gpt_onnx.export.quantize.stored import Stored, dequantized, read_stored
from gpt_onnx.runtime._arguments import counted

from .case import Case, Finding
from .exact import exact_bundle, exact_cases
from .half import HalfReference
from .in_turn import InTurn
from .mapped import reading_cases
from .original import original_cases
from .reference import FLOAT32, Others, Reference
from .rewritten import RewrittenReference
from .rounding import Int8Inputs, IntegerProducts
from .trial import Trial
from .weights import GROUP, check_float, check_rounded, first_fault, same_numbers

if TYPE_CHECKING:
    from gpt_onnx.export.gpt_source import Source

INT8_INPUTS = 4
"""The accuracy level at which products see their inputs rounded to int8."""

Array = NDArray[Any]


def _closer(weight: Array, found: Array) -> bool:
    """Whether a square weight is stored as the source has it, and not inputs first."""
    first, second = np.abs(weight - found).sum(), np.abs(weight.T - found).sum()
    return bool(first <= second)


class QuantizedReference(RewrittenReference):
    """The source's program with the bundle's own weights; see the module and Reference.

    Args:
        source: What the bundle was made from.
        folder: The bundle.

    Raises:
        BundleError: if it is not quantised, or its graphs cannot be read.
    """

    def __init__(self, source: Source, folder: Path) -> None:
        quantization = open_bundle(folder, check_hashes=False).manifest.quantization
        if quantization is None:
            raise BundleError(f"{folder} has no quantised weights; compare it with the source itself.")
        self.quantization: QuantizationInfo = quantization
        self.stored: Stored = read_stored(folder)
        self._source = source
        self._turned: dict[str, bool] = {}
        original = source.reference()
        rounding = IntegerProducts(self.blocks, Int8Inputs if self.rounds_inputs else InTurn)
        others = Others(names=frozenset(self.stored.quantized), read=self._read, rounding=rounding)
        name = f"{original.name} with the bundle's own quantised weights"
        super().__init__(original, original.with_weights(others), name)

    @property
    def rounds_inputs(self) -> bool:
        """Whether products of the bundle see their inputs rounded to int8."""
        return self.quantization.accuracy_level == INT8_INPUTS

    @property
    def blocks(self) -> Mapping[str, int]:
        """The block size of each weight of integers."""
        return {name: grid.block_size for name, grid in self.stored.grids.items()}

    @property
    def cost(self) -> str:
        """See Reference."""
        return f"{FLOAT32} with inputs of products rounded to int8" if self.rounds_inputs else FLOAT32

    def _read(self, name: str) -> Tensor:
        """Return a weight as the source's program has it."""
        found = dequantized(self.stored.quantized[name])
        return torch.from_numpy(np.ascontiguousarray(found.T if self._is_turned(name, found) else found))

    def _is_turned(self, name: str, found: Array) -> bool:
        """Whether the source has a weight inputs first; our GPT has none."""
        if self._source.config is not None:
            return False
        if name not in self._turned:
            weight = self._source.weight(name)
            square = weight.shape[0] == weight.shape[1]
            self._turned[name] = not _closer(weight, found) if square else weight.shape != found.shape
        return self._turned[name]

    def own_cases(self, trial: Trial) -> Iterator[Case]:
        """See Reference."""
        yield from original_cases(trial.setting, trial.original, self.original)
        yield from self.weight_cases()
        yield from reading_cases(self.original, trial.setting)
        if self.rounds_inputs:
            folder = trial.stack.enter_context(exact_bundle(trial.bundle.bundle))
            yield from exact_cases(trial.setting, trial.beside(folder))

    # what the bundle stores, beside the source

    def weight_cases(self) -> Iterator[Case]:
        """Look at every weight that is stored."""
        quantized, floats = len(self.stored.quantized), len(self._floats())
        for name, check in (
            ("as the manifest says", self._check_manifest),
            (f"{counted(quantized, 'quantised weight')} beside the source's", self._check_quantized),
            (f"{counted(floats, 'float32 weight')} bit for bit the source's", self._check_floats),
        ):
            yield Case(group=GROUP, name=name, run=partial(_finding, check))

    def _check_manifest(self) -> Iterator[str | None]:
        """Hold what the nodes say of their weights against what the manifest says."""
        told = self.quantization
        for name, grid in self.stored.grids.items():
            if grid.bits not in (told.bits, told.head_bits) or grid.block_size != told.block_size:
                yield f"{name} is stored in {grid.bits} bits and blocks of {grid.block_size}"
        for name, level in self.stored.accuracy_levels.items():
            if level != told.accuracy_level:
                yield f"{name} has accuracy_level {level}; {told.accuracy_level} was asked for"

    def _check_quantized(self) -> Iterator[str | None]:
        quantizer = QUANTIZERS.get(self.quantization.quantizer)
        nearest = quantizer is not None and not quantizer.calibrated
        for name, quantized in self.stored.quantized.items():
            yield self._check_one(name, quantized, nearest)
            if name in self.stored.again:
                same = same_numbers(quantized, self.stored.again[name])
                yield None if same else f"{name} is stored twice, and differently"

    def _check_one(self, name: str, quantized: Quantized, nearest: bool) -> str | None:
        weight = self._source.weight(name)
        turned = self._source.config is None and self._is_turned(name, dequantized(quantized))
        fault = check_rounded(weight.T if turned else weight, quantized, nearest=nearest)
        return None if fault is None else f"{name} {fault}"

    def _floats(self) -> dict[str, str]:
        """Return the source's name of each weight that is not quantised, with the graph's."""
        named = self._source.parameter_names()
        rest = {name: graph for graph, name in named.items() if name not in self.stored.quantized}
        return {name: name if name in self.stored.floats else graph for name, graph in rest.items()}

    def _check_floats(self) -> Iterator[str | None]:
        for name, stored in self._floats().items():
            if stored in self.stored.floats:
                fault = check_float(self._source.weight(name), self.stored.floats[stored])
                yield None if fault is None else f"{name} {fault}"
            elif self._source.config is not None:
                yield f"{name} is nowhere in the bundle"


def _finding(check: Callable[[], Iterator[str | None]]) -> Finding:
    """Report the first fault."""
    return Finding(fault=first_fault(check()))


def quantized_reference(source: Source, folder: Path) -> QuantizedReference:
    """Return what a bundle with quantised weights is compared with.

    Raises:
        BundleError: if it is not quantised, or its graphs cannot be read.
    """
    return QuantizedReference(source, folder)


REFERENCES: Mapping[str, Callable[[Source, Path], Reference]] = {
    "int8": quantized_reference,
    "int4": quantized_reference,
    "fp16": HalfReference,
}
"""What a bundle of a precision is compared with; of others, the source's own program."""


def reference_for(source: Source, folder: Path) -> Reference:
    """Return what a bundle of the source is compared with, quantised or not.

    Raises:
        BundleError: if the bundle's graphs cannot be read.
    """
    precision = open_bundle(folder, check_hashes=False).manifest.precision
    return REFERENCES[precision](source, folder) if precision in REFERENCES else source.reference()
