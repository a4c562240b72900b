"""Writing a checkpoint, so that a reader meets the old one or the new one and never half of one.

>>> write_checkpoint("gpt", model.config, model.state_dict(), tokenizer, store="fp16")
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from gpt_onnx._whole_files import flush_to_disk, replace_file
from gpt_onnx.checkpoint.generation import GENERATION_FILE
from gpt_onnx.checkpoint.layout import CONFIG_FILE, WEIGHTS_FILE
from gpt_onnx.checkpoint.rounding import STORES, as_stored, check_store
from gpt_onnx.checkpoint.safetensors import write_file
from gpt_onnx.checkpoint.tokenizer_files import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TokenizerFiles
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError
from gpt_onnx.parameter_shapes import parameter_shapes


def write_checkpoint(
    path: str | Path,
    config: GPTConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: TokenizerFiles | None = None,
    *,
    store: str = "fp32",
    overwrite: bool = False,
    generation: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a folder: config.json, model.safetensors, the tokenizer's two files, generation_config.json.

    A new folder appears whole. In an old one each file is replaced whole, the weights last, and files that
    belong to no checkpoint are left alone.

    Args:
        path: The folder.
        config: What the model is made of.
        tensors: Weights by the names of ``GPT.state_dict``.
        tokenizer: To be written beside them.
        store: A key of STORES: weights are rounded to it.
        overwrite: Whether the folder may exist.
        generation: What generation_config.json shall say; empty for no such file.

    Raises:
        CheckpointError: if the folder exists, cannot be written, or the weights are not the configuration's.
    """
    folder = Path(path)
    if folder.exists() and not overwrite:
        raise CheckpointError(f"{folder} exists; choose another folder, or allow it to be overwritten.")
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; a checkpoint is one: choose another name.")
    arrays = _stored(config, tensors, store)
    texts = _texts(config, tokenizer, generation)
    try:
        if folder.is_dir():
            _write_texts(folder, texts)
            replace_file(folder / WEIGHTS_FILE, lambda file: write_file(file, arrays, {"format": "pt"}))
        else:
            _write_new(folder, texts, arrays)
    except OSError as exc:
        raise CheckpointError(f"{folder} could not be written: {exc.strerror or exc}.") from exc


def _stored(
    config: GPTConfig, tensors: Mapping[str, Tensor], store: str
) -> dict[str, tuple[str, NDArray[Any]]]:
    """Check names, shapes and values, and round every weight to its stored form."""
    check_store(store)
    expected = parameter_shapes(config)
    if expected != (given := {name: tuple(tensor.shape) for name, tensor in tensors.items()}):
        wrong = next(name for name in {**expected, **given} if expected.get(name) != given.get(name))
        raise CheckpointError(
            f"{wrong} has the shape {given.get(wrong)} and by the configuration {expected.get(wrong)}; "
            "give the state_dict of a model of this configuration."
        )
    label = STORES[store][0]
    return {name: (label, as_stored(name, tensors[name], store)) for name in expected}


def _texts(
    config: GPTConfig, tokenizer: TokenizerFiles | None, generation: Mapping[str, Any]
) -> dict[str, str]:
    """Return every file but the weights."""
    texts = {CONFIG_FILE: json.dumps(config.to_dict(), indent=2) + "\n"}
    if tokenizer is not None:
        texts[TOKENIZER_FILE] = tokenizer.definition
        texts[TOKENIZER_CONFIG_FILE] = json.dumps(tokenizer.config, indent=2) + "\n"
    if generation:
        texts[GENERATION_FILE] = json.dumps(dict(generation), indent=2) + "\n"
    return texts


def _write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Replace each file, and take away those of an older checkpoint that this one lacks."""
    for name, text in texts.items():
        replace_file(folder / name, partial(Path.write_text, data=text, encoding="utf-8"))
    for name in {TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, GENERATION_FILE} - texts.keys():
        (folder / name).unlink(missing_ok=True)


def _write_new(
    folder: Path, texts: Mapping[str, str], arrays: Mapping[str, tuple[str, NDArray[Any]]]
) -> None:
    """Fill a folder under a temporary name, then give it its own."""
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    staging.mkdir(parents=True)
    try:
        _write_texts(staging, texts)
        write_file(staging / WEIGHTS_FILE, arrays, {"format": "pt"})
        flush_to_disk(staging / WEIGHTS_FILE)
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    flush_to_disk(folder.parent)
