"""What a bundle and its export will take: bytes of weights, of the cache, and of memory.

Weights and cache are counted. Memory is a formula that was fitted to measurements (peak resident
memory of the whole process; Linux, x86-64, torch 2.13, two cores):

    without the gate   BASE + COPIES x the largest weight
    with the gate      GATE_BASE + SESSIONS x all weights: several sessions of ONNX Runtime, and float64

    parameters     largest weight    without the gate        with it
                                     measured  formula       measured  formula
    5.8 million    4 MB              430 MB    438 MB        853 MB    1.07 GB
    124 million    154 MB            621 MB    739 MB        2.45 GB+  2.49 GB
    201 million    131 MB            609 MB    692 MB        2.74 GB+  3.41 GB
    1.1 billion    262 MB            1.16 GB   0.95 GB       12.5 GB   14.2 GB

A + stands where the gate was stopped before its end: it takes at least that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .weights import ALIGNMENT, INLINE_BELOW, align_from

Shapes = Mapping[str, tuple[int, ...]]
FLOAT32 = 4  # bytes
BLOCK = 32  # weights that share a scale, where they are stored as int8 or int4


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How weights can be stored."""

    name: str
    matrix_bits: float
    """Of each weight in a matrix; scales, one fp32 for BLOCK weights, counted in."""
    other_bits: float
    """Of each other weight: norms, biases, tables of positions."""
    cache_bytes: int
    """Of each number in the cache."""
    written: bool
    """Whether this version writes it; False: the numbers are an estimate of what such weights would take."""


SCALE_BITS = 32 / BLOCK
PRECISIONS = (
    Precision(name="fp32", matrix_bits=32, other_bits=32, cache_bytes=4, written=True),
    Precision(name="fp16", matrix_bits=16, other_bits=16, cache_bytes=2, written=False),
    Precision(name="int8", matrix_bits=8 + SCALE_BITS, other_bits=32, cache_bytes=4, written=False),
    Precision(name="int4", matrix_bits=4 + SCALE_BITS, other_bits=32, cache_bytes=4, written=False),
)
POSITIONS = "wpe.weight"


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and name != POSITIONS


def data_bytes(shapes: Shapes) -> int:
    """Return the size of the data file that ``bind`` writes for float32 weights of these shapes."""
    sizes = sorted((FLOAT32 * math.prod(shape) for shape in shapes.values()), reverse=True)
    external = [size for size in sizes if size >= INLINE_BELOW]
    threshold, position = align_from(external), 0
    for size in external:
        position += size + (-position % ALIGNMENT if size >= threshold else 0)
    return position


def weight_bytes(shapes: Shapes, precision: Precision) -> int:
    """Return the bytes of weights of these shapes in a precision."""
    if precision.written:
        return data_bytes(shapes)
    bits = sum(
        math.prod(shape) * (precision.matrix_bits if _is_matrix(name, shape) else precision.other_bits)
        for name, shape in shapes.items()
    )
    return math.ceil(bits / 8)


BASE = 430_000_000
"""Bytes of the process with torch, onnx and onnxscript, and a graph traced."""
COPIES = 2
"""Of the largest weight: as it is read, and widened, turned or joined."""
GATE_BASE = 1_000_000_000
"""Bytes of the process with ONNX Runtime, a graph's sessions and what the gate computes, without weights."""
SESSIONS = 3
"""Copies of all weights: two sessions of ONNX Runtime, one of which packs them anew."""
DOUBLE = 2
"""A module of anybody's is copied to float64 as a whole."""


def _largest(shapes: Shapes) -> int:
    return FLOAT32 * max(math.prod(shape) for shape in shapes.values())


def _all(shapes: Shapes) -> int:
    return FLOAT32 * sum(math.prod(shape) for shape in shapes.values())


def memory_of_gpt(shapes: Shapes, *, checked: bool) -> int:
    """Return the peak memory of the export of a checkpoint, whose weights are read one at a time."""
    plain = BASE + COPIES * _largest(shapes)
    return max(plain, GATE_BASE + SESSIONS * _all(shapes)) if checked else plain


def memory_of_module(shapes: Shapes, *, checked: bool) -> int:
    """Return the peak memory of the export of a module in memory."""
    plain = BASE + _all(shapes) + COPIES * _largest(shapes)
    return max(plain, GATE_BASE + (1 + DOUBLE + SESSIONS) * _all(shapes)) if checked else plain
