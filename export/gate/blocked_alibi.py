"""Attention with ALiBi's bias over a block of queries at a time: the whole bias is (H, S, S)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from gpt_onnx.model.alibi import Alibi
from gpt_onnx.model.attention import Heads, KeyValue, append, merge_heads, share_heads, split_heads

SCORES = 2**24
"""Numbers of attention scores with a bias that exist at once: 128 MB in float64."""


class BlockedAlibi:
    """See the module."""

    def __init__(self, alibi: Alibi) -> None:
        self._alibi = alibi

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm; there is no past."""
        query, key, value = split_heads(qkv, heads)
        present = append(past, key, value)
        keys, values = (share_heads(part, heads.group_size) for part in present)
        places = torch.arange(query.shape[2], device=qkv.device).unsqueeze(0)
        step = max(1, SCORES // (heads.n_head * query.shape[2]))
        blocks = []
        for start in range(0, query.shape[2], step):
            stop = min(start + step, query.shape[2])
            asked, seen = places[:, start:stop], places[:, :stop]
            bias = self._alibi(asked, seen, qkv.dtype)
            bias = bias.masked_fill(seen.unsqueeze(1) > asked.unsqueeze(2), float("-inf"))
            out = F.scaled_dot_product_attention(
                query[:, :, start:stop], keys[:, :, :stop], values[:, :, :stop], bias, scale=heads.scale
            )
            blocks.append(merge_heads(out))
        return torch.cat(blocks, dim=1), present
