"""Checkpoints: a folder with a configuration, weights in safetensors and, perhaps, a tokenizer."""

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.load import load_model
from gpt_onnx.checkpoint.reader import find_shipped, read_checkpoint
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles
from gpt_onnx.checkpoint.writer import write_checkpoint

__all__ = [
    "Checkpoint",
    "TokenizerFiles",
    "find_shipped",
    "load_model",
    "read_checkpoint",
    "write_checkpoint",
]
