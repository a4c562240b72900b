"""How the weights of our GPT are made from the tensors that somebody else's program stored.

    Recipe((Piece("q", (64, 64)), Piece("k", (32, 64)), Piece("v", (32, 64))), joined)   # -> c_attn.weight
    Recipe((Piece("transformer.h.0.mlp.c_fc.weight", (64, 256)),), transposed)           # Conv1D -> Linear

A piece says which shape the configuration expects, so that a checkpoint that contradicts its configuration
is refused before a weight is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.checkpoint.store import Store
from gpt_onnx.errors import CheckpointError

FLOAT32_MAX = float(np.finfo(np.float32).max)
Floats = NDArray[np.floating[Any]]
Make = Callable[[Sequence[Floats]], Floats]


def alone(parts: Sequence[Floats]) -> Floats:
    """Return the one piece as it is."""
    (part,) = parts
    return part


def transposed(parts: Sequence[Floats]) -> Floats:
    """Return the one piece with its two dims exchanged: the Conv1D of GPT-2 stores (in, out)."""
    return np.ascontiguousarray(alone(parts).T)


def joined(parts: Sequence[Floats]) -> Floats:
    """Return the pieces one below the other: separate projections, or separate heads, as one matrix."""
    return np.concatenate(list(parts), axis=0)


def first_rows(count: int) -> Make:
    """Return what keeps the first rows of the one piece: padding of a vocabulary is left out."""
    return lambda parts: alone(parts)[:count]


@dataclass(frozen=True, slots=True)
class Piece:
    """One stored tensor, and the shape that the configuration says it has."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The stored tensors that one weight is made of, and how."""

    pieces: tuple[Piece, ...]
    make: Make = alone

    @classmethod
    def of(cls, name: str, *shape: int) -> Recipe:
        """Return the recipe of a weight that is stored as it is."""
        return cls((Piece(name, shape),))


def make_weight(store: Store, recipe: Recipe) -> Floats:
    """Read the pieces and make the weight of them, as an array of its own memory.

    Raises:
        CheckpointError: if a piece holds NaN or infinity, by its stored name, or cannot be read.
    """
    return recipe.make([_finite(store, piece.name) for piece in recipe.pieces])


OVERFLOW = "it overflowed when it was rounded to half precision: save it as float32 or bfloat16"
NOT_FINITE = "such weights compute nothing: go back to an earlier checkpoint"


def _finite(store: Store, name: str) -> Floats:
    """Read a tensor, each of whose values must be a number that float32 has."""
    array = store.read(name)
    if wrong := array.size - int(np.count_nonzero(np.isfinite(array))):
        overflowed = array.dtype == np.float16 and not np.isnan(array).any()
        raise CheckpointError(
            f"{store.path}: {name} has NaN or infinity in {wrong} of {array.size} places; "
            f"{OVERFLOW if overflowed else NOT_FINITE}."
        )
    if array.dtype == np.float64 and (largest := float(np.abs(array).max(initial=0.0))) > FLOAT32_MAX:
        raise CheckpointError(
            f"{store.path}: {name} has a value of {largest:.1e}; weights are computed in float32, which goes "
            f"up to {FLOAT32_MAX:.1e}."
        )
    return array


def check_recipes(
    store: Store,
    recipes: Mapping[str, Recipe],
    *,
    ignored: Collection[str] = (),
    config_name: str = "config.json",
) -> None:
    """See that every piece is stored with its shape, and that nothing is stored that nobody uses.

    Args:
        store: The tensors.
        recipes: By the names of GPT.state_dict.
        ignored: Stored names that are no weights, such as masks, or are another name of a used tensor.
        config_name: Where the configuration comes from, for messages.

    Raises:
        CheckpointError: naming the first tensor that is missing, has another shape, or is left over.
    """
    pieces = [piece for recipe in recipes.values() for piece in recipe.pieces]
    if missing := [piece.name for piece in pieces if piece.name not in store.tensors]:
        raise CheckpointError(
            f"{store.path} lacks {len(missing)} of the model's tensors, {missing[0]} first."
        )
    used = {piece.name for piece in pieces}
    if extra := [name for name in store.tensors if name not in used and name not in ignored]:
        raise CheckpointError(
            f"{store.path} has {len(extra)} tensors unknown to the model of {config_name}, {extra[0]} first."
        )
    for piece in pieces:
        if (found := store.tensors[piece.name].shape) != piece.shape:
            raise CheckpointError(
                f"{store.path}: {piece.name} has the shape {list(found)}; "
                f"by {config_name} it must be {list(piece.shape)}."
            )


BLOCK_ROWS = 4096


def same_values(store: Store, first: str, second: str) -> bool:
    """Whether two stored tensors are equal, element by element: tied weights that are stored twice."""
    one, other = store.read(first), store.read(second)
    if one.shape != other.shape:
        return False
    rows = range(0, len(one), BLOCK_ROWS)
    return all(np.array_equal(one[row : row + BLOCK_ROWS], other[row : row + BLOCK_ROWS]) for row in rows)
