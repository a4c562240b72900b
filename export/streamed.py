"""Our own GPT in float32 over many windows at once, a layer at a time: each weight is read once.

    predict = streamed_predictor(config, read, list_of_windows, told)
    for logits in predict(list_of_windows[0]): ...        # (S, V), the windows in their order

One layer's weights exist at a time, hidden states of all windows, and logits of a block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import skeleton
from gpt_onnx.runtime.quality import Predict, Window
from gpt_onnx.runtime.quality.predictors import rows_at_once

from .gate.lending import Weights
from .gate.streams import embedded, lent_layers

Told = Callable[[int, int], None]
"""Told how many layers are done, and how many there are."""

TOKENS_AT_ONCE = 4096
"""Of a batch: as many as keep the cores busy, and no more for what a layer makes on its way."""


def _batches(sequences: Sequence[Window]) -> Iterator[list[int]]:
    """Yield the numbers of windows of one length that are computed together."""
    by_length: dict[int, list[int]] = {}
    for index, window in enumerate(sequences):
        by_length.setdefault(window.ids.size, []).append(index)
    for length, indices in by_length.items():
        step = max(1, TOKENS_AT_ONCE // length)
        yield from (indices[low : low + step] for low in range(0, len(indices), step))


def _hidden(weights: Weights, sequences: Sequence[Window], told: Told) -> list[Tensor]:
    """Return for each window what the head sees at the positions from its first on, (S, n_embd)."""
    program = weights.program(torch.float32)
    numbers = list(_batches(sequences))
    batches = [torch.from_numpy(np.stack([sequences[i].ids for i in part])) for part in numbers]
    streams = [stream for (stream,) in embedded(weights, [program], batches)]
    for layer in lent_layers(weights, program):
        for stream in streams:
            stream.through(layer)
        told(layer + 1, program.config.n_layer)
    hidden: dict[int, Tensor] = {}
    with weights.lent("ln_f.", program):
        for part, stream in zip(numbers, streams, strict=True):
            for row, index in enumerate(part):
                hidden[index] = program.finish(stream.x[row, sequences[index].first :]).clone()
    return [hidden[index] for index in range(len(sequences))]


def streamed_predictor(
    config: GPTConfig, read: Callable[[str], NDArray[Any]], sequences: Sequence[Window], told: Told
) -> Predict:
    """Compute all but the head for all windows, and return what computes their logits, in their order.

    Args:
        config: Of the model.
        read: Reads a weight in float32 by its name in ``GPT.state_dict``.
        sequences: The windows that will be asked for.
        told: Told of each layer.
    """
    weights = Weights(skeleton(config), lambda name: torch.from_numpy(read(name)))
    with torch.no_grad():
        states = iter(_hidden(weights, sequences, told))
    program, rows = weights.program(torch.float32), rows_at_once(config.vocab_size)

    def predict(window: Window) -> Iterator[NDArray[Any]]:
        for block in torch.split(next(states), rows):
            with torch.no_grad():
                logits: NDArray[Any] = weights.head(program, block).numpy()
            yield logits

    return predict
