"""The attention forms of the graphs.

Shapes: B batch, S new tokens, P cached tokens, T = P + S, N frozen length, H query heads, K key and value
heads, D head size, E = D rounded up to what the operator takes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from gpt_onnx.model.attention import Heads, KeyValue, masked_attention, split_heads


def padded_head_size(head_size: int, multiple: int) -> int:
    """Round a head size up to the multiple that a target's operator takes."""
    return -(-head_size // multiple) * multiple


class GroupQueryAttention:
    """``com.microsoft::GroupQueryAttention`` on the packed projection; its cache may be one buffer in place.

    Heads are padded with zeros to the cache's head size and the scale is explicit, so padding is exact.
    ``seqlens_k`` is the number of valid tokens less one, clamped at 0: a row of padding alone is an error
    otherwise.
    """

    def __init__(self, attention_mask: Tensor, cache_head_size: int) -> None:
        self.seqlens_k = (attention_mask.sum(dim=1) - 1).clamp(min=0).to(torch.int32)  # (B,)
        self.total_length = torch.scalar_tensor(attention_mask.shape[1], dtype=torch.int32)
        self.cache_head_size = cache_head_size

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm."""
        batch, length = qkv.shape[:2]
        out_size = heads.n_head * self.cache_head_size
        past_length = past[0].shape[2] if past else 0
        total = self._present_length(past_length, length)
        cache_shape = (batch, heads.n_kv_head, total, self.cache_head_size)
        out, key, value = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (self._pad(qkv, heads), None, None, *(past or (None, None)), self.seqlens_k, self.total_length),
            attrs={
                "num_heads": heads.n_head,
                "kv_num_heads": heads.n_kv_head,
                "scale": heads.scale,
            },
            dtypes=(qkv.dtype,) * 3,
            shapes=((batch, length, out_size), cache_shape, cache_shape),
            version=1,
        )
        return self._cut(out, heads), (key, value)

    def _present_length(self, past_length: int, length: int) -> int:
        return past_length + length

    def _pad(self, qkv: Tensor, heads: Heads) -> Tensor:
        """Bring (B, S, (H + 2K) D) to (B, S, (H + 2K) E)."""
        if self.cache_head_size == heads.head_size:
            return qkv
        packed = torch.unflatten(qkv, -1, (heads.packed, heads.head_size))
        return F.pad(packed, (0, self.cache_head_size - heads.head_size)).flatten(-2)

    def _cut(self, out: Tensor, heads: Heads) -> Tensor:
        """Bring (B, S, H E) back to (B, S, H D)."""
        if self.cache_head_size == heads.head_size:
            return out
        padded = torch.unflatten(out, -1, (heads.n_head, self.cache_head_size))
        return padded[..., : heads.head_size].flatten(-2)


class InPlaceGroupQueryAttention(GroupQueryAttention):
    """The same over a cache of N frozen slots: the present is as long as the past."""

    def _present_length(self, past_length: int, length: int) -> int:
        return past_length or length


class SlotAttention:
    """Standard operators over a cache of N frozen slots: one new token is written at its slot.

    The slot is the number of valid tokens less one. ``Where`` writes it, so that no operator scatters.
    """

    def __init__(self, attention_mask: Tensor, bias: Tensor | None = None) -> None:
        self.bias = bias  # (B, H, 1, N)
        slots = torch.arange(attention_mask.shape[1])
        newest = attention_mask.sum(dim=1, keepdim=True) - 1  # (B, 1)
        self.is_new = (slots == newest).unsqueeze(1).unsqueeze(-1)  # (B, 1, N, 1)
        self.mask = attention_mask.to(torch.bool).unsqueeze(1).unsqueeze(1)  # (B, 1, 1, N)

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm; the past is there always."""
        assert past is not None
        query, key, value = split_heads(qkv, heads)
        present = torch.where(self.is_new, key, past[0]), torch.where(self.is_new, value, past[1])
        return masked_attention(query, present, self.mask, heads, self.bias), present
