"""GGUF files of llama.cpp: gpt2, llama (mistral too) and qwen2, in floating point or simply quantised.

The configuration, the tokenizer where it can be rebuilt, the ids of special tokens and the chat template come
out of the file. Quantised tensors are dequantised; the bundle holds what llama.cpp would compute with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.gguf_file import MAGIC
from gpt_onnx.checkpoint.gguf_metadata import Keys, decimal, shown
from gpt_onnx.checkpoint.gguf_store import PLAIN, GgufStore
from gpt_onnx.checkpoint.gguf_tokenizer import PREFIX, TEMPLATE, tokenizer_of
from gpt_onnx.checkpoint.naming import check_naming, recipes_of
from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions, find_tokenizer, refuse_options
from gpt_onnx.checkpoint.readers.gguf_families import FAMILIES, HEAD, Family, config_of
from gpt_onnx.checkpoint.recipe import Floats, Recipe, joined, same_values
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError

KIND = "GGUF file"
EMBEDDING = "token_embd.weight"
SAMPLING: Mapping[str, str] = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
"""Keys of how to sample, and the words of generation_config.json."""


def recognises(path: Path) -> bool:
    """Whether it is a file that begins as GGUF does."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def _family(store: GgufStore) -> tuple[str, Family]:
    """Return the architecture.

    Raises:
        CheckpointError: if it is unknown, or the model is spread over several files.
    """
    if (count := store.metadata.get("split.count", 1)) not in (0, 1):
        raise CheckpointError(
            f"{store.path} is one of {shown(count)} files of a model; merge them with llama-gguf-split."
        )
    name = store.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in FAMILIES:
        raise CheckpointError(
            f"{store.path} has the architecture {shown(name)}; known are {', '.join(FAMILIES)}: if the model "
            "computes what ours can, name its weights before they became GGUF, with --config and --names."
        )
    return name, FAMILIES[name]


def _is_tied(store: GgufStore) -> bool:
    """Whether the head is the embedding: not stored, or stored twice."""
    head, embedding = store.tensors.get(HEAD), store.tensors.get(EMBEDDING)
    if head is None or embedding is None:
        return head is None
    alike = (head.dtype, head.shape) == (embedding.dtype, embedding.shape)
    return alike and same_values(store, HEAD, EMBEDDING)


def put_back(rows: Floats, size: int) -> Floats:
    """Undo the exchange of rows: pairs of neighbours in each head become its two halves."""
    heads = rows.reshape(-1, size // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)


def _put_back(recipe: Recipe, size: int) -> Recipe:
    """Return the recipe of a packed projection whose queries and keys are put back first."""

    def make(parts: Sequence[Floats]) -> Floats:
        queries, keys, values = parts
        return joined([put_back(queries, size), put_back(keys, size), values])

    return dataclasses.replace(recipe, make=make)


def _recipes(family: Family, store: GgufStore, config: GPTConfig, *, tied: bool) -> dict[str, Recipe]:
    recipes = recipes_of(family.naming, store, config)
    twice = (HEAD,) if tied else ()
    check_naming(family.naming, store, config, recipes, ignored=twice, config_name="its metadata")
    if not family.permuted:
        return recipes
    return {
        name: _put_back(recipe, config.head_size) if ".c_attn." in name else recipe
        for name, recipe in recipes.items()
    }


def _generation(store: GgufStore, vocab_size: int) -> dict[str, Any]:
    """Return what the file says about generation.

    Raises:
        CheckpointError: if an id or a number is of another type, or beyond the vocabulary.
    """
    found: dict[str, Any] = {}
    for role in ("bos", "eos", "pad"):
        value = store.metadata.get(key := f"{PREFIX}{role}_token_id")
        if value is None:
            continue
        if type(value) is not int or not 0 <= value < vocab_size:
            raise CheckpointError(
                f"{store.path} has {key} = {shown(value)}; an id below {vocab_size} was expected."
            )
        found[f"{role}_token_id"] = value
    for key, name in SAMPLING.items():
        value = store.metadata.get(key)
        if isinstance(value, int | float) and type(value) is not bool:
            found[name] = value if isinstance(value, int) else decimal(value)
    return found


def _tokenizer(
    store: GgufStore, options: ReadOptions, family: Family, config: GPTConfig
) -> tuple[TokenizerFiles | None, tuple[str, ...]]:
    """Return the tokenizer, and notes."""
    if options.tokenizer is not None:
        return find_tokenizer(None, options.tokenizer, config), ()
    files, note = tokenizer_of(store.path, store.metadata, config.context_length, family.pre)
    if files is not None and files.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{store.path} has a tokenizer with ids up to {files.vocab_size - 1} and an embedding of "
            f"{config.vocab_size} rows; take another tokenizer with --tokenizer, or none."
        )
    lost = files is None and TEMPLATE in store.metadata
    notes = (note, "Its chat template goes with the tokenizer, and is left out.") if lost else (note,)
    return files, tuple(text for text in notes if text is not None)


def _precision(store: GgufStore) -> tuple[str, ...]:
    """Return a sentence about quantised weights."""
    kinds = sorted({tensor.dtype for tensor in store.tensors.values()} - {*PLAIN, "BF16"})
    if not kinds:
        return ()
    return (f"The file's weights are quantised ({', '.join(kinds)}); the bundle has what they stand for.",)


def read(path: Path, options: ReadOptions) -> Checkpoint:
    """See Reader."""
    refuse_options(options, KIND)
    store = GgufStore(path)
    name, family = _family(store)
    keys, tied = Keys(path, store.metadata, name), _is_tied(store)
    config = config_of(family, keys, store, tied=tied)
    recipes = _recipes(family, store, config, tied=tied)
    tokenizer, notes = _tokenizer(store, options, family, config)
    return Checkpoint(
        path=path,
        kind=f"{KIND} ({name})",
        config=config,
        store=store,
        recipes=recipes,
        tokenizer=tokenizer,
        generation=_generation(store, config.vocab_size),
        notes=(*notes, *_precision(store)),
    )


READER = Reader(
    kind=KIND,
    summary=f"a GGUF file ({', '.join(FAMILIES)})",
    recognises=recognises,
    read=read,
)
