"""The model: a trainable GPT in eager PyTorch whose forward pass takes the cache and returns it."""

from gpt_onnx.model.alibi import Alibi
from gpt_onnx.model.attention import MultiHeadAttention
from gpt_onnx.model.block import FeedForward, TransformerBlock
from gpt_onnx.model.gpt import GPT
from gpt_onnx.model.norms import RMSNorm
from gpt_onnx.model.positions import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from gpt_onnx.model.rotary import RotaryPositions
from gpt_onnx.model.skeleton import skeleton

__all__ = [
    "GPT",
    "Alibi",
    "FeedForward",
    "LearnedPositionalEmbedding",
    "MultiHeadAttention",
    "RMSNorm",
    "RotaryPositions",
    "SinusoidalPositionalEncoding",
    "TransformerBlock",
    "skeleton",
]
