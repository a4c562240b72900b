"""Other programs' names of tensors, as a table from theirs to ours.

    Naming((
        Name("model.embed_tokens.weight", "wte.weight"),
        Name("model.layers.{layer}.self_attn.q_proj.weight", "h.{layer}.attn.q.weight"),
        Name("transformer.h.{layer}.mlp.c_fc.weight", "h.{layer}.mlp.c_fc.weight", transposed=True),
    ))

``{layer}`` and ``{head}`` stand for a number each. On our side stand the names of ``GPT.state_dict``, and
parts of the packed projection ``h.{layer}.attn.c_attn``: ``attn.q``, ``attn.k`` and ``attn.v``, each whole or
one head at a time (``attn.q.{head}``), which are joined in order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpt_onnx.checkpoint.layout import expected_shapes
from gpt_onnx.checkpoint.recipe import Piece, Recipe, alone, joined, transposed
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError

PACKED = re.compile(r"(h\.\d+\.attn)\.c_attn\.(weight|bias)")
PARTS = ("q", "k", "v")
PLACES = ("layer", "head")
NEAREST = 3  # names of a like shape that a message offers

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Name:
    """One line of a table."""

    theirs: str
    ours: str
    transposed: bool = False
    """Whether they store (in, out), as GPT-2's Conv1D does."""


@dataclass(frozen=True, slots=True)
class Naming:
    """A table of names."""

    names: tuple[Name, ...]
    ignored: tuple[str, ...] = ()
    """Patterns of stored tensors that are no weights, such as causal masks; {layer} may stand in them."""


@dataclass(frozen=True, slots=True)
class Match:
    """A stored tensor that a line of the table names."""

    theirs: str
    transposed: bool


def pattern(text: str) -> re.Pattern[str]:
    """Return the expression of a name in which {layer} and {head} stand for numbers."""
    escaped = re.escape(text)
    for place in PLACES:
        escaped = escaped.replace(re.escape(f"{{{place}}}"), rf"(?P<{place}>\d+)", 1)
    return re.compile(escaped)


def is_ignored(naming: Naming, name: str) -> bool:
    """Whether a stored name is on the list of those that are no weights."""
    return any(pattern(text).fullmatch(name) for text in naming.ignored)


def matches_of(naming: Naming, stored: Iterable[str]) -> dict[str, Match]:
    """Return our name of each stored tensor that the table knows; the first line that fits counts.

    Raises:
        CheckpointError: if two stored tensors get one name.
    """
    lines = [(pattern(line.theirs), line) for line in naming.names]
    found: dict[str, Match] = {}
    for name in stored:
        for expression, line in lines:
            if match := expression.fullmatch(name):
                ours = line.ours.format(**match.groupdict())
                if ours in found:
                    raise CheckpointError(
                        f"{name} and {found[ours].theirs} would both be {ours}; take one out of the table."
                    )
                found[ours] = Match(name, line.transposed)
                break
    return found


def part_shapes(config: GPTConfig, kind: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parts q, k and v of a layer's packed weight or bias."""
    counts = (config.n_head, config.n_kv_head, config.n_kv_head)
    width = (config.n_embd,) if kind == "weight" else ()
    return {part: (count * config.head_size, *width) for part, count in zip(PARTS, counts, strict=True)}


def _head_shapes(config: GPTConfig, stem: str, kind: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield our name and shape of every single head of a layer, in the order in which they are joined."""
    for part, (rows, *width) in part_shapes(config, kind).items():
        for head in range(rows // config.head_size):
            yield f"{stem}.{part}.{head}.{kind}", (config.head_size, *width)


def _ways(name: str, shape: tuple[int, ...], config: GPTConfig) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield each set of our names, with shapes, that one weight can be made of."""
    yield {name: shape}
    if packed := PACKED.fullmatch(name):
        stem, kind = packed.groups()
        yield {f"{stem}.{part}.{kind}": size for part, size in part_shapes(config, kind).items()}
        yield dict(_head_shapes(config, stem, kind))


def _recipe(parts: Shapes, matches: Mapping[str, Match]) -> Recipe:
    """Make one weight of parts that are all there."""
    pieces, turned = [], {matches[part].transposed for part in parts}
    for part, shape in parts.items():
        match = matches[part]
        pieces.append(Piece(match.theirs, shape[::-1] if match.transposed else shape))
    if turned == {False}:
        return Recipe(tuple(pieces), joined if len(pieces) > 1 else alone)
    if len(pieces) == 1:
        return Recipe(tuple(pieces), transposed)
    flags = [matches[part].transposed for part in parts]
    return Recipe(
        tuple(pieces),
        lambda arrays: joined([a.T if flag else a for a, flag in zip(arrays, flags, strict=True)]),
    )


def recipes_of(naming: Naming, store: Store, config: GPTConfig) -> dict[str, Recipe]:
    """Return a recipe for each weight of the configuration that the table finds in the store.

    What is missing on either side, or of a wrong shape, is for ``check_naming`` to say.
    """
    matches = matches_of(naming, store.tensors)
    recipes: dict[str, Recipe] = {}
    for name, shape in expected_shapes(config).items():
        for parts in _ways(name, shape, config):
            if all(part in matches for part in parts):
                recipes[name] = _recipe(parts, matches)
                break
    return recipes


def _nearest(shape: tuple[int, ...], candidates: Shapes) -> list[str]:
    """Return the names of like shape: equal first, then transposed, then as many elements."""
    ranks = (
        lambda other: other == shape,
        lambda other: other == shape[::-1],
        lambda other: math.prod(other) == math.prod(shape),
    )
    found = [name for rank in ranks for name, other in candidates.items() if rank(other)]
    return list(dict.fromkeys(found))[:NEAREST]


def _listed(names: Shapes, others: Shapes) -> str:
    first = [
        f"{name} {list(shape)}" + (f" (like {', '.join(near)})" if (near := _nearest(shape, others)) else "")
        for name, shape in list(names.items())[:NEAREST]
    ]
    more = len(names) - len(first)
    return "; ".join(first) + (f"; and {more} more" if more > 0 else "")


def check_naming(
    naming: Naming,
    store: Store,
    config: GPTConfig,
    recipes: Mapping[str, Recipe],
    *,
    ignored: Iterable[str] = (),
    config_name: str = "config.json",
) -> None:
    """See that the table leaves nothing over on either side, and that every shape is the configuration's.

    Args:
        naming: The table.
        store: The tensors.
        config: What the model is made of.
        recipes: From ``recipes_of``.
        ignored: Further stored names that are nobody's weights, such as a tied head that is stored twice.
        config_name: Where the configuration comes from, for messages.

    Raises:
        CheckpointError: naming what is left over on both sides, with the nearest shapes, or the first tensor
            of a wrong shape.
    """
    used = {piece.name for recipe in recipes.values() for piece in recipe.pieces}
    skipped = {*ignored, *(name for name in store.tensors if is_ignored(naming, name))}
    theirs = {
        name: stored.shape
        for name, stored in store.tensors.items()
        if name not in used and name not in skipped
    }
    ours = {name: shape for name, shape in expected_shapes(config).items() if name not in recipes}
    if ours or theirs:
        sides = [
            f"the model of {config_name} lacks {_listed(ours, theirs)}" if ours else "",
            f"the file has tensors that it does not know: {_listed(theirs, ours)}" if theirs else "",
        ]
        raise CheckpointError(f"{store.path}: {', and '.join(side for side in sides if side)}.")
    for recipe in recipes.values():
        for piece in recipe.pieces:
            if (found := store.tensors[piece.name].shape) != piece.shape:
                raise CheckpointError(
                    f"{store.path}: {piece.name} has the shape {list(found)}; "
                    f"by {config_name} it must be {list(piece.shape)}."
                )
