"""What says where a token stands: an encoding added to it, a turn of its queries and keys, or a score bias.

    sinusoidal, learned   ENCODINGS   added to the embeddings, once
    rotary                ROTATIONS   turns queries and keys, in every layer (gpt_onnx.model.rotary)
    alibi                 BIASES      added to the scores, in every layer (gpt_onnx.model.alibi)

An encoding takes the embeddings ``x`` of shape (B, S, n_embd), whose length, dtype and device it follows,
and returns what is to be added: (S, n_embd) for positions 0 to S - 1, which broadcasts over the batch, or
(B, S, n_embd) where explicit ``position_ids`` of shape (B, S) are given.

    >>> SinusoidalPositionalEncoding(8)(torch.zeros(1, 3, 8)).shape
    torch.Size([3, 8])
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError, InputError
from gpt_onnx.model.alibi import Alibi
from gpt_onnx.model.rotary import RotaryPositions
from gpt_onnx.model.sines import QUARTER, Sines

BASE = 10000.0
Part = TypeVar("Part")


def divisors(n_embd: int) -> list[float]:
    """Return the divisor of each pair of a sine and a cosine: 10000^(2i / n_embd), in float64."""
    return [BASE ** (2 * pair / n_embd) for pair in range(n_embd // 2)]


def _interleaved(frequencies: list[float]) -> Sines:
    """Column 2i is a sine, column 2i + 1 the cosine of the same angle."""
    return Sines(
        tuple(frequency for frequency in frequencies for _ in range(2)), (0.0, QUARTER) * len(frequencies)
    )


def _concatenated(frequencies: list[float]) -> Sines:
    """All sines, then all cosines."""
    count = len(frequencies)
    return Sines(tuple(frequencies) * 2, (0.0,) * count + (QUARTER,) * count)


STYLES: Mapping[str, Callable[[list[float]], Sines]] = {
    "interleaved": _interleaved,
    "concatenated": _concatenated,
}


class SinusoidalPositionalEncoding(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/n_embd)), PE(pos, 2i+1) = cos of the same angle.

    "Attention Is All You Need", section 3.5. No parameters, no buffers, any length; within 2e-6 of float64 at
    every position up to 2^20, in eager PyTorch and in the exported graph. Half-precision inputs are encoded
    in float32 and then cast, float64 inputs in float64. The style "concatenated" has the same columns, all
    sines before all cosines.

    Raises:
        ConfigError: if n_embd is odd.
    """

    def __init__(self, n_embd: int, style: str = "interleaved") -> None:
        super().__init__()
        if n_embd < 2 or n_embd % 2:
            raise ConfigError(
                f"n_embd is {n_embd}; sinusoidal positions pair sines with cosines and need it even."
            )
        self.n_embd, self.style = n_embd, style
        self.sines = STYLES[style]([1 / divisor for divisor in divisors(n_embd)])

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return (S, n_embd), or (B, S, n_embd) for explicit position_ids; x is (B, S, n_embd)."""
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)
        return self.sines(position_ids, x.dtype)

    def extra_repr(self) -> str:
        """Show the width and the style in ``repr``."""
        return f"n_embd={self.n_embd}, style={self.style}"


class LearnedPositionalEmbedding(nn.Module):
    """One trained row for each position: a table ``weight`` of (context_length, n_embd).

    Raises:
        InputError: on a sequence longer than the table, or on a position outside it. The values of positions
            are looked at in eager PyTorch only: a trace has none, and a graph's ``Gather`` checks its own.
    """

    def __init__(self, context_length: int, n_embd: int) -> None:
        super().__init__()
        self.context_length = context_length
        self.weight = nn.Parameter(torch.empty(context_length, n_embd))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return (S, n_embd), or (B, S, n_embd) for explicit position_ids; x is (B, S, n_embd)."""
        if x.shape[1] > self.context_length:
            raise InputError(
                f"the sequence has {x.shape[1]} tokens and the maximum context window is "
                f"{self.context_length}; shorten it, or use a model with sinusoidal positions."
            )
        if position_ids is None:
            return self.weight[: x.shape[1]]
        if not (torch.compiler.is_compiling() or position_ids.is_meta):
            self._check_positions(position_ids)
        return nn.functional.embedding(position_ids, self.weight)

    def _check_positions(self, position_ids: Tensor) -> None:
        """Refuse positions outside the table in a sentence; indexing would not say which, nor the limit."""
        outside = position_ids[(position_ids < 0) | (position_ids >= self.context_length)]
        if outside.numel():
            raise InputError(
                f"position {int(outside[0])} is outside the table of learned positions, 0 to "
                f"{self.context_length - 1} (the maximum context window is {self.context_length}); "
                "shorten the sequence, or use a model with sinusoidal positions."
            )

    def extra_repr(self) -> str:
        """Show the sizes in ``repr``."""
        return f"context_length={self.context_length}, n_embd={self.weight.shape[1]}"


ENCODINGS: Mapping[str, Callable[[GPTConfig], nn.Module]] = {
    "sinusoidal": lambda config: SinusoidalPositionalEncoding(config.n_embd, config.sinusoidal_style),
    "learned": lambda config: LearnedPositionalEmbedding(config.context_length, config.n_embd),
}
ROTATIONS: Mapping[str, Callable[[GPTConfig], RotaryPositions]] = {"rotary": RotaryPositions}
BIASES: Mapping[str, Callable[[GPTConfig], Alibi]] = {"alibi": lambda config: Alibi(config.n_head)}


def make(table: Mapping[str, Callable[[GPTConfig], Part]], config: GPTConfig) -> Part | None:
    """Return what the configuration's positions have in a table; None where they have nothing there."""
    maker = table.get(config.position)
    return None if maker is None else maker(config)


Model = TypeVar("Model", bound=nn.Module)


def with_float32_angles(gpt: Model) -> Model:
    """Return a model that shares all weights and makes angles as most other programs do, in float32.

    Their angle is a float32 position times a float32 frequency, wrong by 0.06 rad at position 10^6. Only
    sinusoidal and rotary positions have angles; models of others are the same.
    """
    shared = copy.copy(gpt)
    shared._modules = dict(gpt._modules)
    for name, module in gpt.named_children():
        if isinstance(sines := getattr(module, "sines", None), Sines):
            changed = copy.copy(module)
            changed.__dict__["sines"] = dataclasses.replace(sines, float32_angles=True)
            shared._modules[name] = changed
    return shared
