"""Sequences on their way through a GPT whose weights are lent, a layer at a time.

    streams = embedded(weights, [program], batches)         # a list for each batch, with one for each program
    for layer in lent_layers(weights, program):
        keys, values = streams[0][0].through(layer)

Whatever walks through layers does it so: the reference of the gate, the base that quality is measured from,
calibration. Each weight is read once for all sequences and all programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpt_onnx.model import GPT
from gpt_onnx.model.attention import AttentionForm, KeyValue, SdpaAttention
from gpt_onnx.model.rotary import Rotation

from .blocked_alibi import BlockedAlibi
from .lending import Weights


@dataclass(slots=True)
class Stream:
    """Sequences of one length on their way through one program, without a cache, without padding."""

    program: GPT
    x: Tensor
    """(B, S, n_embd)."""
    attention: AttentionForm
    rotation: Rotation | None

    @classmethod
    def start(cls, program: GPT, ids: Tensor) -> Stream:
        """Embed ids (B, S) of a program that has been lent what it needs for them."""
        x = program.embed(ids)
        attention = SdpaAttention() if program.alibi is None else BlockedAlibi(program.alibi)
        return cls(program, x, attention, program.rotation(x))

    def through(self, layer: int) -> KeyValue:
        """Go through a layer that has been lent, and return its keys and values."""
        self.x, present = self.program.h[layer](self.x, self.attention, None, self.rotation)
        found: KeyValue = present
        return found


def embedded(weights: Weights, programs: Sequence[GPT], batches: Sequence[Tensor]) -> list[list[Stream]]:
    """Return what goes into the first layer; the tables are read once.

    Args:
        weights: The programs'.
        programs: The model, in one precision each, without weights.
        batches: Ids, (B, S) each.

    Returns:
        For each batch a stream of each program.
    """
    if not batches:
        return []
    ids = torch.cat([batch.flatten() for batch in batches]).to(weights.device)
    rows, places = torch.unique(ids, return_inverse=True)
    parts = torch.split(places, [batch.numel() for batch in batches])
    with weights.lent("wpe.", *programs), weights.rows_lent(rows, *programs):
        return [
            [Stream.start(program, part.view(batch.shape)) for program in programs]
            for part, batch in zip(parts, batches, strict=True)
        ]


def lent_layers(weights: Weights, *programs: GPT) -> Iterator[int]:
    """Yield each layer's number while programs have its weights."""
    for layer in range(weights.gpt.config.n_layer):
        with weights.lent(f"h.{layer}.", *programs):
            yield layer
