"""A GPT's forward pass on several sequences, in float32 and in float64 beside it, one layer after another.

Each layer's weights are read once for all sequences and both precisions (gpt_onnx.export.gate.streams), and
what a layer leaves behind is measured at once: keys and values in float64, and their errors in float32.
Attention over many tokens never exists as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gpt_onnx.model import GPT

from .cases import Ids
from .lending import Weights
from .shelf import Shelf
from .streams import Stream, embedded, lent_layers
from .tolerance import AnyFloats, RowErrors
from .truth import CacheTruth


@dataclass(slots=True)
class Pass:
    """What came out of one sequence."""

    single: Tensor
    """What the head sees in float32, (S, n_embd)."""
    double: Tensor
    """The same in float64."""
    caches: list[CacheTruth] = field(default_factory=list)


def _positions_first(part: Tensor) -> AnyFloats:
    """Turn (1, K, S, D) into (S, K, D)."""
    array: AnyFloats = part[0].transpose(0, 1).cpu().numpy()
    return array


def _cache_truth(single: Tensor, double: Tensor, shelf: Shelf) -> CacheTruth:
    r64 = np.ascontiguousarray(_positions_first(double), dtype=np.float64)
    return CacheTruth(r64=shelf.put(r64), errors=RowErrors.measure(_positions_first(single), r64))


Cached = Callable[[Tensor], Tensor]
"""Gives keys or values of the program in float32 as a bundle's cache has them."""


def _as_they_are(tensor: Tensor) -> Tensor:
    return tensor


def _through(layer: int, streams: list[Stream], cached: Cached, shelf: Shelf) -> list[CacheTruth]:
    """Take one sequence through one layer of both programs and return the keys' and the values' truth."""
    presents = [stream.through(layer) for stream in streams]
    return [_cache_truth(cached(single), double, shelf) for single, double in zip(*presents, strict=True)]


def run_layers(
    weights: Weights,
    programs: tuple[GPT, GPT],
    sequences: Sequence[Ids],
    cached: Cached = _as_they_are,
) -> list[Pass]:
    """Compute all but the head.

    Args:
        weights: Theirs.
        programs: The model in float32 and in float64, without weights.
        sequences: Each on its own, without a cache, without padding.
        cached: What the cache makes of keys and values.
    """
    caches: list[list[CacheTruth]] = [[] for _ in sequences]
    shelf = Shelf()
    with torch.no_grad():
        every = embedded(weights, programs, [torch.tensor([ids]) for ids in sequences])
        for layer in lent_layers(weights, *programs):
            for streams, kept in zip(every, caches, strict=True):
                kept += _through(layer, streams, cached, shelf)
        with weights.lent("ln_f.", *programs):
            ends = [[stream.program.finish(stream.x)[0] for stream in streams] for streams in every]
    return [Pass(single, double, kept) for (single, double), kept in zip(ends, caches, strict=True)]
