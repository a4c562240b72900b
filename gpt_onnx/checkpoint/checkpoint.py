"""A checkpoint, whoever wrote it: a configuration, and recipes that make our GPT's weights of its tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpt_onnx._paths import real_path
from gpt_onnx.checkpoint.recipe import Recipe, make_weight
from gpt_onnx.checkpoint.store import Store, Stored
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose configuration, names and shapes agree; its weights are still on the disk."""

    path: Path
    """The folder or file that was named."""
    kind: str
    """What it was recognised as, e.g. "Hugging Face folder (llama)"."""
    config: GPTConfig
    """What the model is made of."""
    store: Store
    """Its tensors, by the names of the program that wrote them."""
    recipes: Mapping[str, Recipe]
    """How each weight of ``GPT.state_dict`` is made of them."""
    tokenizer: TokenizerFiles | None = None
    """Its tokenizer; None where it works by ids alone."""
    generation: Mapping[str, Any] = field(default_factory=dict)
    """What it says about generation, in the words of generation_config.json; empty where it says nothing."""
    padded_vocab_size: int | None = None
    """Rows that the stored embedding has, where the last of them are padding and were left out."""
    notes: tuple[str, ...] = ()
    """Sentences that the user should read: what was left out, and why."""
    is_original: bool = False
    """Whether our GPT is the very program that trained it; False: it is our reading of another program's."""

    @property
    def name(self) -> str:
        """What to call the model: the folder's name, or the file's without its ending."""
        path = real_path(self.path)
        return path.name if path.is_dir() else path.stem

    @property
    def tensors(self) -> Mapping[str, Stored]:
        """Every stored tensor's dtype and shape, by its stored name."""
        return self.store.tensors

    @property
    def sha256(self) -> str:
        """Hash of everything that was or will be read, whatever the folder is called; reads all weights."""
        digest = hashlib.sha256()
        texts = [json.dumps(self.config.to_dict(), sort_keys=True), *_tokenizer_texts(self.tokenizer)]
        if self.generation:
            texts.append(json.dumps(dict(self.generation), sort_keys=True))
        for text in texts:
            digest.update(hashlib.sha256(text.encode()).digest())
        for path in self.store.files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def numpy(self, name: str) -> NDArray[np.floating[Any]]:
        """Make one weight of ``GPT.state_dict`` as an array of its own memory.

        Raises:
            CheckpointError: if there is no such weight, it holds NaN or infinity, or the file has changed.
        """
        if name not in self.recipes:
            raise CheckpointError(f"{self.store.path} has no tensor {name!r}.")
        return make_weight(self.store, self.recipes[name])

    def tensor(self, name: str) -> torch.Tensor:
        """Make one weight as a tensor of its own memory; see ``numpy``."""
        return torch.from_numpy(self.numpy(name))


def _tokenizer_texts(files: TokenizerFiles | None) -> tuple[str, ...]:
    return () if files is None else (files.definition, json.dumps(files.config, sort_keys=True))
