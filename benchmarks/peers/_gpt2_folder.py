"""Weights of a Hugging Face gpt2 folder, for peers whose environment holds numpy and nothing else.

>>> folder = Gpt2Folder(Path("weights/gpt2"))
>>> folder.linear("h.0.attn.c_attn").shape  # (out, in), whatever the file has
(2304, 768)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PREFIX = "transformer."


class Gpt2Folder:
    """A folder with config.json and model.safetensors in float32, as ``gpt-onnx convert`` writes it."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        path = folder / "model.safetensors"
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(size))
        header.pop("__metadata__", None)
        self._header = header
        self._data = np.memmap(path, np.uint8, "r", offset=8 + size)

    @property
    def layers(self) -> int:
        """Number of blocks."""
        return int(self.config["n_layer"])

    def weight(self, name: str) -> NDArray[np.float32]:
        """Return a copy of a tensor by its name in GPT2LMHeadModel, without the prefix."""
        entry = self._header[PREFIX + name]
        begin, end = entry["data_offsets"]
        return np.array(self._data[begin:end].view("<f4").reshape(entry["shape"]))

    def linear(self, name: str) -> NDArray[np.float32]:
        """Return the matrix of a linear layer as (out, in); gpt2 stores (in, out)."""
        return np.ascontiguousarray(self.weight(f"{name}.weight").T)
