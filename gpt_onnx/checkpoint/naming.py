"""Other programs' names of tensors, as a table from theirs to ours.

    Naming((
        Name("model.embed_tokens.weight", "wte.weight"),
        Name("model.layers.{layer}.self_attn.q_proj.weight", "h.{layer}.attn.q.weight"),
        Name("transformer.h.{layer}.mlp.c_fc.weight", "h.{layer}.mlp.c_fc.weight", transposed=True),
    ))

``{layer}`` and ``{head}`` stand for a number each. On our side stand the names of ``GPT.state_dict``, and
parts of the packed projection ``h.{layer}.attn.c_attn``: ``attn.q``, ``attn.k`` and ``attn.v``, each whole or
one head at a time (``attn.q.{head}``), or ``attn.kv``; they are joined in order. ``attn.qkv_by_head`` is
packed another way: the first head's queries, keys and values, then the second's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpt_onnx.checkpoint.leftovers import Shapes, listed
from gpt_onnx.checkpoint.names import Name, Naming, pattern
from gpt_onnx.checkpoint.recipe import Floats, Piece, Recipe, alone, joined, transposed
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError
from gpt_onnx.parameter_shapes import parameter_shapes

__all__ = ["Match", "Name", "Naming", "check_naming", "matches_of", "recipes_of", "unnamed"]

BY_HEAD = "qkv_by_head"
PACKED = re.compile(r"(h\.[0-9]+\.attn)\.c_attn\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class Match:
    """A stored tensor that a line of the table names."""

    theirs: str
    transposed: bool


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
    counts = {"q": config.n_head, "k": config.n_kv_head, "v": config.n_kv_head}
    width = (config.n_embd,) if kind == "weight" else ()
    return {part: (count * config.head_size, *width) for part, count in counts.items()}


def _by_head(
    stem: str, part: str, kind: str, shape: tuple[int, ...], size: int
) -> dict[str, tuple[int, ...]]:
    """Return our names and shapes of the single heads of a part."""
    rows, *width = shape
    return {f"{stem}.{part}.{head}.{kind}": (size, *width) for head in range(rows // size)}


def _ways(name: str, shape: tuple[int, ...], config: GPTConfig) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield each set of our names, with shapes, that one weight can be made of."""
    yield {name: shape}
    packed = PACKED.fullmatch(name)
    if packed is None:
        return
    stem, kind = packed.groups()
    if config.n_kv_head == config.n_head:
        yield {f"{stem}.{BY_HEAD}.{kind}": shape}
    shapes = part_shapes(config, kind)
    whole = {part: {f"{stem}.{part}.{kind}": size} for part, size in shapes.items()}
    single = {part: _by_head(stem, part, kind, size, config.head_size) for part, size in shapes.items()}
    rows, *width = shapes["k"]
    yield whole["q"] | {f"{stem}.kv.{kind}": (2 * rows, *width)}
    for q, k, v in itertools.product((whole, single), repeat=3):
        yield q["q"] | k["k"] | v["v"]


def _turned(flags: Sequence[bool], arrays: Sequence[Floats]) -> list[Floats]:
    return [array.T if flag else array for flag, array in zip(flags, arrays, strict=True)]


def _regrouped(array: Floats, heads: int) -> Floats:
    """Put all heads' queries before all keys and all values."""
    grouped = array.reshape(heads, 3, -1, *array.shape[1:])
    return np.ascontiguousarray(grouped.swapaxes(0, 1)).reshape(array.shape)


def _recipe(parts: Shapes, matches: Mapping[str, Match], heads: int) -> Recipe:
    """Make one weight of parts that are all there."""
    flags = [matches[part].transposed for part in parts]
    pieces = tuple(
        Piece(matches[part].theirs, shape[::-1] if flag else shape)
        for flag, (part, shape) in zip(flags, parts.items(), strict=True)
    )
    if len(pieces) == 1:
        make = transposed if flags[0] else alone
        by_head = f".{BY_HEAD}." in next(iter(parts))
        return Recipe(pieces, (lambda arrays: _regrouped(make(arrays), heads)) if by_head else make)
    return Recipe(pieces, (lambda arrays: joined(_turned(flags, arrays))) if any(flags) else joined)


def recipes_of(naming: Naming, store: Store, config: GPTConfig) -> dict[str, Recipe]:
    """Return a recipe for each weight of the configuration that the table finds in the store.

    What is missing on either side, or of a wrong shape, is for ``check_naming`` to say.
    """
    matches = matches_of(naming, store.tensors)
    recipes: dict[str, Recipe] = {}
    for name, shape in parameter_shapes(config).items():
        parts = next((way for way in _ways(name, shape, config) if matches.keys() >= way.keys()), None)
        if parts is not None:
            recipes[name] = _recipe(parts, matches, config.n_head)
    return recipes


def _lacking(
    matches: Mapping[str, Match], config: GPTConfig, recipes: Mapping[str, Recipe]
) -> dict[str, tuple[int, ...]]:
    """Return our names that nothing is stored for: of a packed weight there in part, the other parts."""
    lacking: dict[str, tuple[int, ...]] = {}
    for name, shape in parameter_shapes(config).items():
        if name not in recipes:
            way = max(_ways(name, shape, config), key=lambda way: len(way.keys() & matches.keys()) / len(way))
            lacking |= {part: size for part, size in way.items() if part not in matches}
    return lacking


def _spare(matches: Mapping[str, Match], config: GPTConfig, recipes: Mapping[str, Recipe]) -> dict[str, str]:
    """Return stored names, with ours, that the table knows and no weight is, or can be, made of."""
    weights = {
        part: name
        for name, shape in parameter_shapes(config).items()
        for way in _ways(name, shape, config)
        for part in way
    }
    used = {piece.name for recipe in recipes.values() for piece in recipe.pieces}
    return {
        match.theirs: ours
        for ours, match in matches.items()
        if match.theirs not in used and (ours not in weights or weights[ours] in recipes)
    }


def unnamed(naming: Naming, store: Store) -> Shapes:
    """Return the stored tensors that the table neither names nor ignores, with their shapes."""
    named = {match.theirs for match in matches_of(naming, store.tensors).values()}
    return {
        name: stored.shape
        for name, stored in store.tensors.items()
        if name not in named and not naming.ignores(name)
    }


def check_naming(
    naming: Naming,
    store: Store,
    config: GPTConfig,
    recipes: Mapping[str, Recipe],
    *,
    ignored: Collection[str] = (),
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
    matches = matches_of(naming, store.tensors)
    ours = _lacking(matches, config, recipes)
    unknown = {name: shape for name, shape in unnamed(naming, store).items() if name not in ignored}
    spare = {
        name: store.tensors[name].shape
        for name in _spare(matches, config, recipes)
        if name not in ignored and not naming.ignores(name)
    }
    sides: tuple[tuple[str, Shapes, Shapes], ...] = (
        ("the model of {} lacks {}", ours, unknown),
        ("the file has tensors that are not named: {1}", unknown, ours),
        ("the file has tensors that the model of {} has no use for: {}", spare, {}),
    )
    if said := [form.format(config_name, listed(left, others)) for form, left, others in sides if left]:
        raise CheckpointError(f"{store.path}: {'; and '.join(said)}.")
    _check_shapes(store, recipes, config_name)


def _check_shapes(store: Store, recipes: Mapping[str, Recipe], config_name: str) -> None:
    for name, recipe in recipes.items():
        for piece in recipe.pieces:
            found = store.tensors[piece.name].shape
            if found == piece.shape:
                continue
            hint = ", which is the same transposed" if found == piece.shape[::-1] else ""
            raise CheckpointError(
                f"{store.path}: {piece.name} has the shape {list(found)}; by {config_name} it must be "
                f"{list(piece.shape)} for {name}{hint}."
            )
