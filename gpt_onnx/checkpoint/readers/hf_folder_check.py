"""What config.json says, held against the tensors of a Hugging Face folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.naming import Match, Name, Naming, matches_of, part_shapes
from gpt_onnx.checkpoint.readers.hf_folder_family import Family, own_keys
from gpt_onnx.checkpoint.recipe import same_values
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError
from gpt_onnx.parameter_shapes import parameter_shapes

HEAD = "lm_head.weight"
EMBEDDING = "wte.weight"
_LAYER = re.compile(r"h\.([0-9]{1,6})\.")


def _prefixed(naming: Naming, prefix: str) -> Naming:
    names = tuple(Name(prefix + name.theirs, name.ours, name.transposed) for name in naming.names)
    return Naming(names=names, ignored=tuple(prefix + name for name in naming.ignored))


def named(family: Family, store: Store, config: GPTConfig) -> Naming:
    """Return the family's names as this folder has them: with the prefix or without, and with the head's.

    The head of a tied model may be the only one of the two that was stored.
    """
    prefix = family.prefix if any(name.startswith(family.prefix) for name in store.tensors) else ""
    naming = _prefixed(family.naming, prefix)
    if not config.tie_embeddings:
        return Naming((*naming.names, Name(HEAD, HEAD)), naming.ignored)
    if EMBEDDING in matches_of(naming, store.tensors):
        return naming
    return Naming((*naming.names, Name(HEAD, EMBEDDING)), naming.ignored)


def tied_name(naming: Naming, store: Store, config: GPTConfig, path: Path) -> tuple[str, ...]:
    """Return the name of a head that is stored beside the embedding that it is tied to, which must be equal.

    Raises:
        CheckpointError: if the two differ, or there is no head where it is not tied.
    """
    embedding = matches_of(naming, store.tensors).get(EMBEDDING)
    if not config.tie_embeddings and HEAD not in store.tensors:
        raise CheckpointError(
            f"{store.path} has no {HEAD}, and {path} says tie_word_embeddings = false; where the head is the "
            "embedding, set it to true."
        )
    if not config.tie_embeddings or embedding is None or embedding.theirs == HEAD:
        return ()
    if HEAD not in store.tensors:
        return ()
    if not same_values(store, embedding.theirs, HEAD):
        raise CheckpointError(
            f"{store.path}: {HEAD} differs from {embedding.theirs}, and {path} says that they are one "
            "(tie_word_embeddings = true); set it to false where the head is a matrix of its own."
        )
    return (HEAD,)


def _sides(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight of layer 0, parts of its projection, and what is outside of layers."""
    parts = {f"h.0.attn.{part}.weight": shape for part, shape in part_shapes(config, "weight").items()}
    return parameter_shapes(config.replace(n_layer=1)) | parts


def _stored_shape(store: Store, match: Match) -> tuple[int, ...]:
    shape = store.tensors[match.theirs].shape
    return shape[::-1] if match.transposed else shape


def _check_layers(found: Mapping[str, Match], config: GPTConfig, key: str, store: Store, path: Path) -> None:
    layers = {int(match.group(1)) for name in found if (match := _LAYER.match(name))}
    if layers and layers != set(range(config.n_layer)):
        raise CheckpointError(
            f"{path} says {key} = {config.n_layer}, and {store.path} has {len(layers)} layers, up to number "
            f"{max(layers)} counted from 0; one of the two is of another model."
        )


def check_claims(
    family: Family,
    values: Mapping[str, Any],
    config: GPTConfig,
    naming: Naming,
    store: Store,
    path: Path,
) -> None:
    """Hold the sizes in config.json against the tensors, by the names of its keys.

    Raises:
        CheckpointError: naming the key and the tensor that contradict each other.
    """
    found = matches_of(naming, store.tensors)
    said, expected = own_keys(family, values), _sides(config)
    _check_layers(found, config, family.layers_key, store, path)
    for claim in family.claims:
        match = found.get(claim.tensor)
        if match is None:
            continue
        shape, wanted = _stored_shape(store, match), expected[claim.tensor]
        if len(shape) != len(wanted) or shape[claim.side] != wanted[claim.side]:
            count = shape[claim.side] if len(shape) > claim.side else "no"
            raise CheckpointError(
                f"{path} says {claim.key} = {said[claim.key]}, by which {match.theirs} must have "
                f"{wanted[claim.side]} {claim.counted}, and it has {count}; "
                "one of the two is of another model."
            )
