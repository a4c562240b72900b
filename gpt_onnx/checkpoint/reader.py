"""Reading a checkpoint: a folder with ``config.json``, ``model.safetensors`` and, perhaps, a tokenizer.

The configuration is read first; then the names and shapes of the weights, from the file's header alone, are
held against the model that it describes. Weights are read when asked for, one at a time. Nothing else in the
folder is opened, and pickled Python objects (``.pt``, ``.bin``, ``.ckpt``) never are.

    >>> checkpoint = read_checkpoint("models/sotu")
    >>> checkpoint.tensor("wte.weight").shape
    torch.Size([4096, 256])
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpt_onnx.checkpoint.safetensors import TensorInfo, read_array, read_header
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles, read_tokenizer
from gpt_onnx.config import GPTConfig, read_json_object
from gpt_onnx.errors import CheckpointError
from gpt_onnx.model import skeleton

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
NO_TOKENIZER = "none"
PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
SUPPORTED = f"a checkpoint is a folder with {CONFIG_FILE} and {WEIGHTS_FILE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose configuration, names and shapes agree; its weights are still on the disk."""

    path: Path
    """The folder."""
    config: GPTConfig
    """What the model is made of."""
    tensors: Mapping[str, TensorInfo]
    """Every weight's dtype, shape and place in the file, by the names of ``GPT.state_dict``."""
    tokenizer: TokenizerFiles | None
    """Its tokenizer; None where it works by ids alone."""

    @property
    def weights_path(self) -> Path:
        """The safetensors file."""
        return self.path / WEIGHTS_FILE

    @property
    def sha256(self) -> str:
        """Hash of everything that was or will be read, whatever the folder is called; reads all weights."""
        digest = hashlib.sha256()
        for text in (json.dumps(self.config.to_dict(), sort_keys=True), *_tokenizer_texts(self.tokenizer)):
            digest.update(hashlib.sha256(text.encode()).digest())
        with self.weights_path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def numpy(self, name: str) -> NDArray[np.floating[Any]]:
        """Read one weight as an array of its own memory; bfloat16 comes as float32, exactly.

        Raises:
            CheckpointError: if there is no such weight, it holds NaN or infinity, or the file has changed.
        """
        if name not in self.tensors:
            raise CheckpointError(f"{self.weights_path} has no tensor {name!r}.")
        try:
            array = read_array(self.weights_path, self.tensors[name])
        except (OSError, ValueError) as exc:
            raise CheckpointError(f"{self.weights_path}: {name} could not be read any more: {exc}.") from exc
        if wrong := array.size - int(np.count_nonzero(np.isfinite(array))):
            raise CheckpointError(
                f"{self.weights_path}: {name} has NaN or infinity in {wrong} of {array.size} places; "
                "such weights compute nothing: go back to an earlier checkpoint."
            )
        return array

    def tensor(self, name: str) -> torch.Tensor:
        """Read one weight as a tensor of its own memory; see ``numpy``."""
        return torch.from_numpy(self.numpy(name))


def read_checkpoint(path: str | Path, *, tokenizer: str | Path | None = None) -> Checkpoint:
    """Open a checkpoint and check all but the values of its weights.

    Args:
        path: The folder.
        tokenizer: Another folder or ``tokenizer.json`` to take the tokenizer from; "none" for no tokenizer;
            None for the checkpoint's own.

    Raises:
        CheckpointError: if a file is missing or damaged, or weights and configuration disagree.
        ConfigError: if ``config.json`` cannot be understood.
    """
    folder = Path(path)
    _check_folder(folder)
    config = GPTConfig.from_dict(read_json_object(folder / CONFIG_FILE), origin=str(folder / CONFIG_FILE))
    tensors = read_header(folder / WEIGHTS_FILE).tensors
    _check_against_model(folder / WEIGHTS_FILE, tensors, config)
    files = _find_tokenizer(folder, tokenizer, config)
    return Checkpoint(path=folder, config=config, tensors=tensors, tokenizer=files)


def find_shipped() -> Path | None:
    """Return the folder of the model that ships with the sources; None where this is not a clone."""
    root = Path(__file__).resolve().parents[2]
    shipped = root / "models" / "sotu"
    return shipped if (root / "pyproject.toml").is_file() and (shipped / WEIGHTS_FILE).is_file() else None


def _check_folder(folder: Path) -> None:
    """Refuse what is no checkpoint in a sentence that names what is one; nothing is opened."""
    if folder.suffix.lower() in PICKLE_SUFFIXES:
        raise CheckpointError(
            f"{folder} is a file of pickled Python objects, which may run code; {SUPPORTED}."
        )
    if not folder.is_dir():
        found = "is not a folder" if folder.exists() else "does not exist"
        raise CheckpointError(f"{folder} {found}; {SUPPORTED}.")
    missing = [name for name in (CONFIG_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    if missing:
        pickles = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in PICKLE_SUFFIXES)
        hint = f" ({pickles[0]} holds pickled Python objects and is not opened)" if pickles else ""
        raise CheckpointError(f"{folder} has no {missing[0]}{hint}; {SUPPORTED}.")


def expected_shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every weight that a model of this configuration has."""
    return {name: tuple(tensor.shape) for name, tensor in skeleton(config).state_dict().items()}


def _check_against_model(path: Path, tensors: Mapping[str, TensorInfo], config: GPTConfig) -> None:
    expected = expected_shapes(config)
    if missing := [name for name in expected if name not in tensors]:
        raise CheckpointError(f"{path} lacks {len(missing)} of the model's tensors, {missing[0]} first.")
    if extra := [name for name in tensors if name not in expected]:
        raise CheckpointError(
            f"{path} has {len(extra)} tensors unknown to the model of {CONFIG_FILE}, {extra[0]} first."
        )
    for name, shape in expected.items():
        if tensors[name].shape != shape:
            raise CheckpointError(
                f"{path}: {name} has the shape {list(tensors[name].shape)}; "
                f"by {CONFIG_FILE} it must be {list(shape)}."
            )


def _find_tokenizer(folder: Path, choice: str | Path | None, config: GPTConfig) -> TokenizerFiles | None:
    if choice is not None and str(choice) == NO_TOKENIZER:
        return None
    source = folder if choice is None else Path(choice)
    if not source.exists():
        raise CheckpointError(
            f"the tokenizer {source} does not exist; name a folder, a tokenizer.json or none."
        )
    files = read_tokenizer(source, config.context_length)
    if files is None and choice is not None:
        raise CheckpointError(f"{source} has neither tokenizer.json nor vocab.json with merges.txt.")
    if files is not None and files.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"the tokenizer in {source} has ids up to {files.vocab_size - 1} and the model's vocabulary has "
            f"{config.vocab_size} rows; take the tokenizer that it was trained with, or none."
        )
    return files


def _tokenizer_texts(files: TokenizerFiles | None) -> tuple[str, ...]:
    return () if files is None else (files.definition, json.dumps(files.config, sort_keys=True))
