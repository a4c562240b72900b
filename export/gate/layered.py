"""A GPT's forward pass on several sequences, in float32 and in float64 beside it, one layer after another.

Each layer's weights are read once for all sequences and both precisions (gpt_onnx.export.gate.lending), and
what a layer leaves behind is measured at once: keys and values in float64, and their errors in float32.
Attention over many tokens never exists as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gpt_onnx.model import GPT
from gpt_onnx.model.alibi import Alibi
from gpt_onnx.model.attention import (
    AttentionForm,
    Heads,
    KeyValue,
    SdpaAttention,
    append,
    merge_heads,
    share_heads,
    split_heads,
)
from gpt_onnx.model.rotary import Rotation

from .cases import Ids
from .lending import Weights
from .tolerance import AnyFloats, RowErrors
from .truth import CacheTruth

SCORES = 2**24
"""Numbers of attention scores with a bias that exist at once: 128 MB in float64."""


class BlockedAlibi:
    """Attention with ALiBi's bias over a block of queries at a time: the whole bias is (H, S, S)."""

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


@dataclass(slots=True)
class _Stream:
    """One sequence on its way through one program."""

    x: Tensor
    """(1, S, n_embd)."""
    rotation: Rotation | None
    attention: AttentionForm


@dataclass(slots=True)
class Pass:
    """What came out of one sequence."""

    single: Tensor
    """What the head sees in float32, (S, n_embd)."""
    double: Tensor
    """The same in float64."""
    caches: list[CacheTruth] = field(default_factory=list)


def _positions_first(part: Tensor) -> AnyFloats:
    """Turn (1, K, S, D) into (S, K, D)."""
    array: AnyFloats = part[0].transpose(0, 1).cpu().numpy()
    return array


def _cache_truth(single: Tensor, double: Tensor) -> CacheTruth:
    r64 = np.ascontiguousarray(_positions_first(double), dtype=np.float64)
    return CacheTruth(r64=r64, errors=RowErrors.measure(_positions_first(single), r64))


def _start(gpt: GPT, length: int, device: torch.device) -> _Stream:
    """Embed a sequence; ``gpt`` has been lent the rows of its tokens, in their order."""
    x = gpt.embed(torch.arange(length, device=device).unsqueeze(0))
    attention = SdpaAttention() if gpt.alibi is None else BlockedAlibi(gpt.alibi)
    return _Stream(x, gpt.rotation(x), attention)


def _embedded(weights: Weights, programs: tuple[GPT, GPT], sequences: Sequence[Ids]) -> list[list[_Stream]]:
    """Return each sequence's streams, one a program."""
    streams = []
    with weights.lent("wpe.", *programs):
        for ids in sequences:
            with weights.rows_lent(torch.tensor(ids), *programs):
                device = programs[0].wte.weight.device
                streams.append([_start(gpt, len(ids), device) for gpt in programs])
    return streams


def run_layers(weights: Weights, programs: tuple[GPT, GPT], sequences: Sequence[Ids]) -> list[Pass]:
    """Compute all but the head.

    Args:
        weights: Theirs.
        programs: The model in float32 and in float64, without weights.
        sequences: Each on its own, without a cache, without padding.
    """
    caches: list[list[CacheTruth]] = [[] for _ in sequences]
    with torch.no_grad():
        every = _embedded(weights, programs, sequences)
        for layer in range(weights.gpt.config.n_layer):
            with weights.lent(f"h.{layer}.", *programs):
                for streams, kept in zip(every, caches, strict=True):
                    kept += _through(layer, programs, streams)
        with weights.lent("ln_f.", *programs):
            ends = [
                [gpt.finish(s.x)[0] for gpt, s in zip(programs, streams, strict=True)] for streams in every
            ]
    return [Pass(single, double, kept) for (single, double), kept in zip(ends, caches, strict=True)]


def _through(layer: int, programs: tuple[GPT, GPT], streams: list[_Stream]) -> list[CacheTruth]:
    """Take one sequence through one layer of both programs and return the keys' and the values' truth."""
    presents = []
    for gpt, stream in zip(programs, streams, strict=True):
        stream.x, present = gpt.h[layer](stream.x, stream.attention, None, stream.rotation)
        presents.append(present)
    return [_cache_truth(single, double) for single, double in zip(*presents, strict=True)]
