"""How well a model predicts a text: nats a token, and bits a byte, which no tokenizer flatters.

bits per byte = (nats per token) x tokens / bytes / ln 2
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gpt_onnx.model import GPT
from gpt_onnx.model.attention import DecomposedAttention, causal_mask
from gpt_onnx.train.tokens import TokenIds

WINDOWS_AT_ONCE = 8


def bits_per_byte(nats_per_token: float, tokens: int, byte_count: int) -> float:
    """Return the information, in bits, that each byte of the text costs under the model."""
    return nats_per_token * tokens / byte_count / math.log(2)


def token_loss(model: GPT, windows: Tensor, precision: str, reduction: str = "mean") -> Tensor:
    """Return the cross entropy, in nats, of predicting every id but the first of each window.

    Args:
        model: In training or evaluation mode.
        windows: Ids (B, S + 1), int64.
        precision: "fp32", or "bf16" for matrices multiplied in bfloat16; the loss is float32 always.
        reduction: As of ``torch.nn.functional.cross_entropy``.
    """
    input_ids = windows[:, :-1]
    if precision == "bf16":  # where products in bfloat16 are fast, the fused attention loses to plain ones
        with torch.autocast("cpu", torch.bfloat16):
            form = DecomposedAttention(causal_mask(input_ids, None, 0), model.bias(input_ids))
            logits, _ = model.run(input_ids, form)
    else:
        logits, _ = model(input_ids)
    return F.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten(), reduction=reduction)


def _windows(ids: TokenIds, length: int) -> Iterator[Tensor]:
    """Cut ids into windows of length + 1 that share one id: each id but the first is predicted once."""
    count = (len(ids) - 1) // length
    for first in range(0, count, WINDOWS_AT_ONCE):
        starts = range(first * length, min(first + WINDOWS_AT_ONCE, count) * length, length)
        yield torch.from_numpy(
            np.stack([ids[start : start + length + 1] for start in starts]).astype(np.int64)
        )
    if count * length < len(ids) - 1:
        yield torch.from_numpy(ids[count * length :][None].astype(np.int64))


@torch.no_grad()
def mean_loss(model: GPT, ids: TokenIds, precision: str = "fp32") -> float:
    """Return nats a token over all ids but the first, read in windows of the model's context length.

    The first tokens of a window see little before them, so this is an upper bound of what the model can do.
    """
    was_training = model.training
    model.eval()
    total = 0.0
    try:
        for windows in _windows(ids, model.config.context_length):
            total += token_loss(model, windows, precision, reduction="sum").item()
    finally:
        model.train(was_training)
    return total / (len(ids) - 1)
