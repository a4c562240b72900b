"""A checkpoint of any kind that can be read, written in another layout, weight by weight.

    >>> convert_checkpoint("ckpt.pt", "my-gpt", to="huggingface").layout
    'Hugging Face gpt2'

The folder appears whole or not at all; of the weights, one is in memory at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpt_onnx._paths import real_path
from gpt_onnx.bundle import replacing
from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.generation import GENERATION_FILE
from gpt_onnx.checkpoint.layout import CONFIG_FILE, CONVERTED_FROM, WEIGHTS_FILE
from gpt_onnx.checkpoint.reader import read_checkpoint
from gpt_onnx.checkpoint.recipe import Floats
from gpt_onnx.checkpoint.rounding import STORES, as_stored, check_store
from gpt_onnx.checkpoint.safetensors import Entry, write_entries
from gpt_onnx.checkpoint.special_ids import special_ids
from gpt_onnx.checkpoint.tokenizer_files import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from gpt_onnx.checkpoint.writers import Layout, choose_layout
from gpt_onnx.checkpoint.writers._parts import Part, parts_of
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import BundleError, CheckpointError, InputError
from gpt_onnx.parameter_shapes import parameter_shapes

WRITTEN = (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, GENERATION_FILE)
"""Every file that a conversion may write; a folder with others in it is not replaced."""

Progress = Callable[[int, int], None]
"""Told the bytes of weights written so far, and all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport:
    """What a conversion made."""

    path: Path
    kind: str
    """What the source was recognised as."""
    layout: str
    """The name of the layout that was written."""
    config: GPTConfig
    parameters: int
    store: str
    """How weights are stored: "fp32", "fp16" or "bf16"."""
    nbytes: int
    """Bytes of all files."""
    files: tuple[str, ...]
    notes: tuple[str, ...]
    """Sentences that the user should read."""


class _Weights:
    """Makes weights, and keeps the last one, as its parts follow one another."""

    def __init__(self, checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._checkpoint, self._shapes = checkpoint, shapes
        self._last: tuple[str, Floats] | None = None

    def weight(self, name: str) -> Floats:
        """Return a weight; a bias that the model lacks is zeros."""
        if self._last is None or self._last[0] != name:
            self._last = None  # before the next one is read
            known = name in self._checkpoint.recipes
            made = self._checkpoint.numpy(name) if known else np.zeros(self._shapes[name], np.float32)
            self._last = name, made
        return self._last[1]

    def entry(self, part: Part, store: str) -> Entry:
        """Return what is to be written of a part."""

        def make() -> NDArray[Any]:
            return as_stored(part.theirs, torch.from_numpy(part.cut(self.weight(part.ours))), store)

        return Entry(dtype=STORES[store][0], shape=part.shape, make=make)


def _texts(checkpoint: Checkpoint, layout: Layout, config: GPTConfig, store: str) -> dict[str, str]:
    """Return every file but the weights."""
    ids = {key: value for key, value in checkpoint.generation.items() if key.endswith("os_token_id")}
    described = layout.describe(config, {**special_ids(checkpoint.tokenizer), **ids})
    if layout.family != "gpt-onnx":
        described["torch_dtype"] = str(STORES[store][1]).removeprefix("torch.")
    texts = {CONFIG_FILE: _json(described)}
    if checkpoint.tokenizer is not None:
        texts[TOKENIZER_FILE] = checkpoint.tokenizer.definition
        texts[TOKENIZER_CONFIG_FILE] = _json(checkpoint.tokenizer.config)
    if checkpoint.generation:
        texts[GENERATION_FILE] = _json(checkpoint.generation)
    return texts


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(dict(values), indent=2, ensure_ascii=False) + "\n"


def _notes(checkpoint: Checkpoint, layout: Layout, missing: list[str]) -> tuple[str, ...]:
    if not missing:
        return checkpoint.notes
    added = (
        f"{layout.name} has {len(missing)} biases that the model lacks, {missing[0]} first; they are written "
        "as zeros, which compute the same."
    )
    return (*checkpoint.notes, added)


def _metadata(checkpoint: Checkpoint) -> dict[str, str]:
    """Mark weights that another program trained: reading them back is still no reading of that program."""
    return {"format": "pt"} | ({} if checkpoint.is_original else {CONVERTED_FROM: checkpoint.kind})


def check_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a destination that must not be replaced.

    Raises:
        CheckpointError: if it is there and ``overwrite`` is false, or it holds what no conversion wrote.
    """
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() and not folder.exists():
        raise CheckpointError(f"{folder} is a link that leads to nothing, or to itself; choose another name.")
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder: choose another name.")
    if not overwrite:
        raise CheckpointError(
            f"{folder} is already there; choose another name, or replace it with --overwrite."
        )
    if foreign := next((name for name in sorted(os.listdir(folder)) if name not in WRITTEN), None):
        raise CheckpointError(f"{folder} holds {foreign}, which no conversion wrote; move it away first.")


def _refuse_itself(source: Path, destination: Path) -> None:
    lies = real_path(source)
    if real_path(destination) == (lies if lies.is_dir() else lies.parent):
        raise InputError(f"{destination} is where the source lies; name another folder.")


@contextmanager
def _publishing(destination: Path, overwrite: bool) -> Iterator[Path]:
    try:
        with replacing(destination, lambda path: check_folder(path, overwrite), lambda path: None) as staging:
            yield staging
    except BundleError as exc:  # the disk is full, or the like
        raise CheckpointError(str(exc)) from exc


def convert_checkpoint(
    source: str | Path,
    destination: str | Path,
    *,
    to: str = "gpt-onnx",
    store: str = "fp32",
    overwrite: bool = False,
    tokenizer: str | Path | None = None,
    config: str | Path | None = None,
    names: str | Path | None = None,
    progress: Progress = lambda done, total: None,
) -> ConvertReport:
    """Write a checkpoint in another layout.

    Args:
        source: What to read.
        destination: The folder to make.
        to: "gpt-onnx", or "huggingface" for the layout of gpt2 or llama, whichever the model fits.
        store: "fp32", "fp16" or "bf16": weights are rounded to it.
        overwrite: Whether an older checkpoint at the destination is replaced.
        tokenizer: See ``read_checkpoint``, as for config and names.
        config: A configuration of a source that does not tell its own.
        names: A table of its names of tensors.
        progress: See Progress.

    Raises:
        CheckpointError, ConfigError: if the source cannot be read or the destination cannot be written.
        InputError: if the model does not fit the layout, or an option has no use.
    """
    check_store(store)
    if not str(destination):
        raise InputError("the destination is an empty name; name the folder to make.")
    checkpoint = read_checkpoint(source, tokenizer=tokenizer, config=config, names=names)
    layout = choose_layout(checkpoint.config, to, str(source))
    _refuse_itself(checkpoint.path, Path(destination))
    written = layout.widened(checkpoint.config)
    shapes = parameter_shapes(written)
    weights = _Weights(checkpoint, shapes)
    entries = {part.theirs: weights.entry(part, store) for part in parts_of(layout.naming, written)}
    texts = _texts(checkpoint, layout, written, store)
    with _publishing(Path(destination), overwrite) as staging:
        for name, text in texts.items():
            (staging / name).write_text(text, encoding="utf-8")
        write_entries(staging / WEIGHTS_FILE, entries, _metadata(checkpoint), progress)
        nbytes = sum(file.stat().st_size for file in staging.iterdir())
    return ConvertReport(
        path=Path(destination),
        kind=checkpoint.kind,
        layout=layout.name,
        config=written,
        parameters=sum(int(np.prod(shape)) for shape in shapes.values()),
        store=store,
        nbytes=nbytes,
        files=(*texts, WEIGHTS_FILE),
        notes=_notes(checkpoint, layout, [name for name in shapes if name not in checkpoint.recipes]),
    )
