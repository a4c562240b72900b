"""The kinds of source that can be read, one file each, found by looking at the source."""

from __future__ import annotations

from gpt_onnx.checkpoint.readers import gguf, hf_folder, libtorch, mingpt, nanochat, nanogpt, own, state_dict
from gpt_onnx.checkpoint.readers._reader import Reader, ReadOptions

READERS: tuple[Reader, ...] = (
    hf_folder.READER,
    gguf.READER,
    libtorch.READER,
    nanogpt.READER,
    mingpt.READER,
    nanochat.READER,
    state_dict.READER,
    own.READER,
)
"""In the order in which they look; our own is last, as it asks for the names of two files alone."""

__all__ = ["READERS", "ReadOptions", "Reader"]
