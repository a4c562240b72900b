"""Attention: how queries meet keys (an attention form), and the layer around it.

A *form* computes attention from the packed projection and keeps the cache; the layer does not know which
form it has. Eager PyTorch uses ``SdpaAttention``; exporting to standard operators uses
``DecomposedAttention``; a target with a fused operator brings its own (gpt_onnx.export.attention).

The layer turns queries and keys before a form sees them, where positions are rotary; a bias on the scores
(ALiBi) is the form's, beside the mask.

Shapes: B batch, S new tokens, P cached tokens, T = P + S, H query heads, K key and value heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.config import GPTConfig
from gpt_onnx.model.rotary import Rotation, turn_packed

KeyValue = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (B, K, T, D)."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of one layer."""

    n_head: int
    n_kv_head: int
    head_size: int
    scale: float
    """What scores are multiplied by before the softmax."""

    @classmethod
    def of(cls, config: GPTConfig, layer: int = 0) -> Heads:
        """Return the heads of a layer, counted from 0."""
        return cls(config.n_head, config.n_kv_head, config.head_size, config.score_scale(layer))

    @property
    def packed(self) -> int:
        """Heads of the packed projection: queries, keys and values."""
        return self.n_head + 2 * self.n_kv_head

    @property
    def group_size(self) -> int:
        """Query heads that share one key and value head."""
        return self.n_head // self.n_kv_head


class AttentionForm(Protocol):
    """Computes attention for one layer; holds what all layers share, such as the mask."""

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """Take the packed (B, S, (H + 2K) D) and the past; return (B, S, H D) and the present."""
        ...


def split_heads(qkv: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Unpack (B, S, (H + 2K) D) into queries (B, H, S, D), keys and values (B, K, S, D)."""
    packed = torch.unflatten(qkv, -1, (heads.packed, heads.head_size)).transpose(1, 2)
    query, key, value = torch.split(packed, [heads.n_head, heads.n_kv_head, heads.n_kv_head], dim=1)
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


def masked_attention(
    query: Tensor, present: KeyValue, mask: Tensor, heads: Heads, bias: Tensor | None = None
) -> Tensor:
    """Return softmax(scale Q K^T + bias) V as (B, S, H D), in plain operators, each of which ONNX has.

    Forbidden keys get the most negative finite score, never -inf: a row that may see nothing stays finite.
    """
    keys, values = (share_heads(part, heads.group_size) for part in present)
    scores = (query * heads.scale) @ keys.transpose(-1, -2)  # (B, H, S, T)
    if bias is not None:
        scores = scores + bias
    scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    return merge_heads(torch.softmax(scores, dim=-1) @ values)


class SdpaAttention:
    """PyTorch's fused attention, for training and for eager inference.

    Without a mask, attention is causal over the past and the new tokens, none of them padding. A bias is
    (1 or B, H, S, T).
    """

    def __init__(self, mask: Tensor | None = None, bias: Tensor | None = None) -> None:
        self.mask, self.bias = mask, bias

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm."""
        query, key, value = split_heads(qkv, heads)
        present = append(past, key, value)
        keys, values = (share_heads(part, heads.group_size) for part in present)
        mask = self._mask(qkv, past)
        out = F.scaled_dot_product_attention(
            query, keys, values, mask, is_causal=mask is None, scale=heads.scale
        )
        return merge_heads(out), present

    def _mask(self, qkv: Tensor, past: KeyValue | None) -> Tensor | None:
        """Return booleans, or a bias that is very negative where a key is forbidden; None: causal."""
        mask = self.mask
        if mask is None and (past is not None or self.bias is not None):
            # is_causal aligns the first query with the first cached key, and takes no bias
            mask = causal_mask(qkv, None, past[0].shape[2] if past else 0)
        if mask is None or self.bias is None:
            return mask
        bias = self.bias.to(qkv.dtype)
        return torch.where(mask, bias, torch.finfo(bias.dtype).min)


class DecomposedAttention:
    """Attention in plain operators over a cache that grows by concatenation; see ``masked_attention``."""

    def __init__(self, mask: Tensor, bias: Tensor | None = None) -> None:
        self.mask, self.bias = mask, bias

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm."""
        query, key, value = split_heads(qkv, heads)
        present = append(past, key, value)
        return masked_attention(query, present, self.mask, heads, self.bias), present


class MultiHeadAttention(nn.Module):
    """Causal attention: packed projection ``c_attn``, an attention form, output projection ``c_proj``.

    n_head x head_size may differ from n_embd. ``layer``, from 0, is what the scale may depend on.
    """

    def __init__(self, config: GPTConfig, layer: int = 0) -> None:
        super().__init__()
        self.heads = Heads.of(config, layer)
        self.c_attn = nn.Linear(config.n_embd, config.qkv_size, bias=config.qkv_bias)
        self.c_proj = nn.Linear(config.n_head * config.head_size, config.n_embd, bias=config.proj_bias)

    def forward(
        self,
        x: Tensor,
        attention: AttentionForm | None = None,
        past: KeyValue | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """Take (B, S, n_embd) and return (B, S, n_embd) and the layer's present keys and values."""
        qkv = self.c_attn(x)
        if rotation is not None:
            qkv = turn_packed(qkv, rotation, self.heads.n_head + self.heads.n_kv_head)
        out, present = (attention or SdpaAttention())(qkv, past, self.heads)
        return self.c_proj(out), present
