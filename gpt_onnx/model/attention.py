"""Attention: how queries meet keys (an attention form), and the layer around it.

A *form* computes attention from the packed projection and keeps the cache; the layer does not know which
form it has. Eager PyTorch uses ``SdpaAttention``; exporting to standard operators uses
``DecomposedAttention``; a target with a fused operator brings its own (gpt_onnx.export.attention).

Shapes: B batch, S new tokens, P cached tokens, T = P + S, H query heads, K key and value heads, D head size.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.config import GPTConfig

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (B, K, T, D)."""


class AttentionForm(Protocol):
    """Computes attention for one layer; holds what all layers share, such as the mask."""

    def __call__(self, qkv: Tensor, past: KeyValue | None, config: GPTConfig) -> tuple[Tensor, KeyValue]:
        """Take the packed (B, S, (H + 2K) D) and the past; return (B, S, H D) and the present."""
        ...


def split_heads(qkv: Tensor, config: GPTConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Unpack (B, S, (H + 2K) D) into queries (B, H, S, D), keys and values (B, K, S, D)."""
    heads = torch.unflatten(qkv, -1, (config.n_head + 2 * config.n_kv_head, config.head_size)).transpose(1, 2)
    query, key, value = torch.split(heads, [config.n_head, config.n_kv_head, config.n_kv_head], dim=1)
    return query, key, value


def merge_heads(heads: Tensor) -> Tensor:
    """Bring (B, H, S, D) back to (B, S, H D)."""
    return heads.transpose(1, 2).flatten(-2)


def append(past: KeyValue | None, key: Tensor, value: Tensor) -> KeyValue:
    """Return the cache with the new keys and values behind the old ones: (B, K, P + S, D)."""
    if past is None:
        return key, value
    return torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)


def share_heads(tensor: Tensor, group_size: int) -> Tensor:
    """Repeat each key or value head for the query heads that share it: (B, K, T, D) to (B, H, T, D)."""
    return tensor if group_size == 1 else tensor.repeat_interleave(group_size, dim=1)


def causal_mask(tokens: Tensor, attention_mask: Tensor | None, past_length: int) -> Tensor:
    """Return which keys each query may see, as booleans (1 or B, 1, S, T): none later, none padded.

    Args:
        tokens: The new tokens, ids (B, S) or vectors (B, S, ...); only their number and device matter.
        attention_mask: 1 where a key counts, (B, T); None where all do.
        past_length: P.
    """
    new_length = tokens.shape[1]
    key_index = torch.arange(past_length + new_length, device=tokens.device)
    query_index = torch.arange(new_length, device=tokens.device) + past_length
    allowed = (key_index <= query_index.unsqueeze(1)).unsqueeze(0).unsqueeze(0)  # (1, 1, S, T)
    if attention_mask is None:
        return allowed
    return allowed & attention_mask.to(torch.bool).unsqueeze(1).unsqueeze(1)


def masked_attention(query: Tensor, present: KeyValue, mask: Tensor, config: GPTConfig) -> Tensor:
    """Return softmax(Q K^T / sqrt(D)) V as (B, S, H D), in plain operators, each of which ONNX has.

    Forbidden keys get the most negative finite score, never -inf: a row that may see nothing stays finite.
    """
    keys, values = (share_heads(part, config.group_size) for part in present)
    scores = (query * (1.0 / math.sqrt(config.head_size))) @ keys.transpose(-1, -2)  # (B, H, S, T)
    scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    return merge_heads(torch.softmax(scores, dim=-1) @ values)


class SdpaAttention:
    """PyTorch's fused attention, for training and for eager inference.

    Without a mask, attention is causal over the past and the new tokens, none of them padding.
    """

    def __init__(self, mask: Tensor | None = None) -> None:
        self.mask = mask

    def __call__(self, qkv: Tensor, past: KeyValue | None, config: GPTConfig) -> tuple[Tensor, KeyValue]:
        """See AttentionForm."""
        query, key, value = split_heads(qkv, config)
        present = append(past, key, value)
        keys, values = (share_heads(part, config.group_size) for part in present)
        mask = self.mask
        if mask is None and past is not None:  # is_causal aligns the first query with the first cached key
            mask = causal_mask(qkv, None, past[0].shape[2])
        out = F.scaled_dot_product_attention(query, keys, values, mask, is_causal=mask is None)
        return merge_heads(out), present


class DecomposedAttention:
    """Attention in plain operators over a cache that grows by concatenation; see ``masked_attention``."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def __call__(self, qkv: Tensor, past: KeyValue | None, config: GPTConfig) -> tuple[Tensor, KeyValue]:
        """See AttentionForm."""
        query, key, value = split_heads(qkv, config)
        present = append(past, key, value)
        return masked_attention(query, present, self.mask, config), present


class MultiHeadAttention(nn.Module):
    """Causal attention: packed projection ``c_attn``, an attention form, output projection ``c_proj``.

    The scale is 1 / sqrt(head_size); n_head x head_size may differ from n_embd.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.c_attn = nn.Linear(config.n_embd, config.qkv_size, bias=config.qkv_bias)
        self.c_proj = nn.Linear(config.n_head * config.head_size, config.n_embd, bias=config.bias)

    def forward(
        self, x: Tensor, attention: AttentionForm | None = None, past: KeyValue | None = None
    ) -> tuple[Tensor, KeyValue]:
        """Take (B, S, n_embd) and return (B, S, n_embd) and the layer's present keys and values."""
        out, present = (attention or SdpaAttention())(self.c_attn(x), past, self.config)
        return self.c_proj(out), present
