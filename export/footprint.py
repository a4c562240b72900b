"""What a bundle and its export will take: bytes of weights, of the cache, and of memory.

Weights and cache are counted. Memory is a formula that was fitted to measurements (peak resident
memory of the whole process; Linux, x86-64, torch 2.13, two cores):

    without the gate   BASE + COPIES x the largest weight
    with the gate      GATE_BASE + LOADED x all weights (a session of ONNX Runtime, a head) + logits

    parameters     largest weight    without the gate        with it (fp32)
                                     measured  formula       measured  formula
    5.8 million    4 MB              430 MB    438 MB        909 MB    1.01 GB
    124 million    154 MB            621 MB    739 MB        2.60 GB   2.44 GB
    774 million    257 MB                                    5.98 GB   5.96 GB
    1.1 billion    262 MB            1.16 GB   0.95 GB
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .gate.cases import LEVELS, MOST_WORK
from .gate.whole import MOST_LOGITS
from .quantize.choice import Choice
from .quantize.grid import Grid
from .quantize.parts import COLUMN_PARTS, ROW_PARTS, parts_bytes, scale_parts
from .weights import ALIGNMENT, INLINE_BELOW, align_from

Shapes = Mapping[str, tuple[int, ...]]
FLOAT32 = 4  # bytes
POSITIONS = "wpe.weight"
EMBEDDING = "wte.weight"
HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How weights are stored."""

    choice: Choice | None = None
    """How matrices become integers; None where they do not."""
    matrix_bytes: int = FLOAT32
    """Of a number in a matrix that is no integer; norms and biases are float32."""
    standard: bool = False
    """Whether standard operators alone read it: the embedding then has a table of its own."""


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and name != POSITIONS


def _float_sizes(shapes: Shapes, stored: Stored) -> list[int]:
    return [
        (stored.matrix_bytes if len(shape) > 1 else FLOAT32) * math.prod(shape)
        for name, shape in shapes.items()
        if stored.choice is None or not _is_matrix(name, shape)
    ]


def _parts_of(name: str, grid: Grid, shapes: Shapes, standard: bool) -> tuple[str, ...]:
    """Return which parts are stored of a weight: its uses are those that our GPT makes of it."""
    if not standard:
        return ("packed", *scale_parts(grid))
    is_product = name != EMBEDDING or HEAD not in shapes
    return (*(COLUMN_PARTS if is_product else ()), *(ROW_PARTS if name == EMBEDDING else ()))


def block_size_of(shapes: Shapes, choice: Choice) -> int | None:
    """Return the block size that weights of these shapes get; None where none of them becomes integers.

    Raises:
        ConfigError: if no block size divides every weight's inputs.
    """
    tables = (EMBEDDING, HEAD) if choice.head_bits is None else ()
    widths = {
        name: shape[1] for name, shape in shapes.items() if _is_matrix(name, shape) and name not in tables
    }
    return choice.block_size(widths) if widths else None


def _integer_sizes(shapes: Shapes, stored: Stored) -> list[int]:
    """Return the sizes of what integer weights are stored as.

    Raises:
        ConfigError: if no block size divides every weight's inputs.
    """
    choice = stored.choice
    block_size = None if choice is None else block_size_of(shapes, choice)
    if choice is None or block_size is None:
        return []
    sizes = []
    for name, shape in shapes.items():
        if not _is_matrix(name, shape):
            continue
        grid = choice.grid(block_size, head=name in (EMBEDDING, HEAD))
        if grid is None:
            sizes.append(FLOAT32 * math.prod(shape))
        else:
            rows, columns = shape
            parts = _parts_of(name, grid, shapes, stored.standard)
            sizes += parts_bytes(parts, (rows, columns), grid)
    return sizes


def data_bytes(sizes: Iterable[int]) -> int:
    """Return the size of the data file that ``bind`` writes for tensors of these sizes."""
    external = [size for size in sorted(sizes, reverse=True) if size >= INLINE_BELOW]
    threshold, position = align_from(external), 0
    for size in external:
        position += size + (-position % ALIGNMENT if size >= threshold else 0)
    return position


def sizes_of_weights(shapes: Shapes, stored: Stored) -> list[int]:
    """Return the bytes of each tensor that weights of these shapes are stored as.

    Raises:
        ConfigError: if no block size divides every weight's inputs.
    """
    return _float_sizes(shapes, stored) + _integer_sizes(shapes, stored)


def stored_bytes(sizes: Iterable[int]) -> int:
    """Return what tensors of these sizes take: in the data file, or in the graph if they are small."""
    sizes = list(sizes)
    return data_bytes(sizes) + sum(size for size in sizes if size < INLINE_BELOW)


BASE = 430_000_000
"""Bytes of the process with torch, onnx and onnxscript, and a graph traced."""
COPIES = 2
"""Of the largest weight: as it is read, and widened, turned or joined."""
GATE_BASE = 950_000_000
"""Bytes of the process with ONNX Runtime and what the gate computes, without weights and logits."""
LOADED = 1.35
"""Of all weights: one session of ONNX Runtime, which packs them anew, and caches of long rows."""
ROWS = max(LEVELS["standard"].batches)
"""Sequences of the context whose logits are compared at once, unless they are more than MOST_LOGITS."""
DOUBLE = 2
"""A module of anybody's is copied to float64 as a whole."""


def _largest(shapes: Shapes) -> int:
    return FLOAT32 * max(math.prod(shape) for shape in shapes.values())


def _all(shapes: Shapes) -> int:
    return FLOAT32 * sum(math.prod(shape) for shape in shapes.values())


def logits_bytes(vocab_size: int, context_length: int | None, parameters: int) -> int:
    """Return the bytes of the logits that the gate holds: of some sequences, and of one as it is computed."""
    length = min(context_length or 0, MOST_WORK // max(1, parameters))
    rows = ROWS if ROWS * length * vocab_size <= MOST_LOGITS else 1
    return FLOAT32 * (rows + 1) * length * vocab_size


def memory_of_gpt(shapes: Shapes, *, logits: int | None) -> int:
    """Return the peak memory of the export of a checkpoint, whose weights are read one at a time.

    Args:
        shapes: Of all weights.
        logits: Bytes that the gate holds; None: without the gate.
    """
    plain = BASE + COPIES * _largest(shapes)
    return plain if logits is None else max(plain, GATE_BASE + int(LOADED * _all(shapes)) + logits)


def memory_of_module(shapes: Shapes, *, logits: int | None) -> int:
    """Return the peak memory of the export of a module in memory; see ``memory_of_gpt``."""
    plain = BASE + _all(shapes) + COPIES * _largest(shapes)
    checked = GATE_BASE + int((1 + DOUBLE + LOADED) * _all(shapes))
    return plain if logits is None else max(plain, checked + logits)
