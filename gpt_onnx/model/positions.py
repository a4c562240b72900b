"""Positions: the sinusoidal encoding, exact at any length, and the learned table.

Both modules take the embeddings ``x`` of shape (B, S, n_embd), whose length, dtype and device they follow,
and return what is to be added: (S, n_embd) for positions 0 to S - 1, which broadcasts over the batch, or
(B, S, n_embd) where explicit ``position_ids`` of shape (B, S) are given.

    >>> SinusoidalPositionalEncoding(8)(torch.zeros(1, 3, 8)).shape
    torch.Size([3, 8])
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor, nn

from gpt_onnx.errors import ConfigError, InputError

BASE = 10000.0
DIGIT_BITS = 10  # positions are written in base 1024 where there is no float64
DIGITS = 4  # enough for positions below 2^40


def divisors(n_embd: int) -> list[float]:
    """Return the divisor of each pair (2i, 2i + 1): 10000^(2i / n_embd), in float64."""
    return [BASE ** (2 * pair / n_embd) for pair in range(n_embd // 2)]


@functools.lru_cache(maxsize=8)
def _digit_tables(n_embd: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each (DIGITS, 1024, n_embd / 2), of every base-1024 digit's own angle."""
    weights = 2.0 ** (DIGIT_BITS * np.arange(DIGITS))
    positions = weights[:, None] * np.arange(2**DIGIT_BITS)  # (DIGITS, 1024)
    angles = positions[..., None] / np.array(divisors(n_embd))
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return torch.from_numpy(cosines).to(device), torch.from_numpy(sines).to(device)


def _encode_by_angle_sum(position_ids: Tensor, n_embd: int) -> Tensor:
    """Encode without float64 by the angle-sum identity, rotating by each digit's angle in turn.

    cos(a + b) = cos a cos b - sin a sin b, sin(a + b) = sin a cos b + cos a sin b.
    """
    cosines, sines = _digit_tables(n_embd, position_ids.device)
    mask = 2**DIGIT_BITS - 1
    cosine, sine = cosines[0][position_ids & mask], sines[0][position_ids & mask]  # (..., n_embd / 2)
    for digit in range(1, DIGITS):
        index = (position_ids >> (DIGIT_BITS * digit)) & mask
        cos_d, sin_d = cosines[digit][index], sines[digit][index]
        cosine, sine = cosine * cos_d - sine * sin_d, sine * cos_d + cosine * sin_d
    return torch.stack((sine, cosine), dim=-1).flatten(-2)  # (..., n_embd)


def _columns(n_embd: int) -> tuple[list[float], list[float]]:
    """Return the divisor and the phase of each of the n_embd columns: 2i a sine, 2i + 1 a cosine."""
    return [divisor for divisor in divisors(n_embd) for _ in range(2)], [0.0, math.pi / 2] * (n_embd // 2)


def _encode_in_float64(
    position_ids: Tensor, columns: tuple[list[float], list[float]], dtype: torch.dtype
) -> Tensor:
    """Encode as one sine: cos a = sin(a + pi/2), so that sines and cosines need no interleaving.

    float32 angles are wrong by 0.06 rad at position 10^6. The angle is therefore made in float64 and brought
    into [0, 2 pi) before it is cast. Every constant is a float64 tensor: the ONNX exporter would store a
    Python float as float32.
    """
    constant = functools.partial(torch.tensor, dtype=torch.float64, device=position_ids.device)
    divisor, phase = map(constant, columns)  # (n_embd,)
    turn = constant(2 * math.pi)
    angle = position_ids.to(torch.float64).unsqueeze(-1) / divisor + phase  # (..., n_embd)
    return torch.sin((angle - torch.floor(angle / turn) * turn).to(dtype))


def _has_float64(device: torch.device) -> bool:
    """Return whether float64 tensors can be made there (not on MPS); asked by trying it."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device) + 1
    except Exception:  # TypeError on MPS, RuntimeError elsewhere, anything at all under a dispatch mode
        return False
    return True


class SinusoidalPositionalEncoding(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/n_embd)), PE(pos, 2i+1) = cos of the same angle.

    "Attention Is All You Need", section 3.5. No parameters, no buffers, any length; within 2e-6 of float64 at
    every position up to 2^20, in eager PyTorch and in the exported graph. Half-precision inputs are encoded
    in float32 and then cast, float64 inputs in float64.

    Raises:
        ConfigError: if n_embd is odd.
    """

    def __init__(self, n_embd: int) -> None:
        super().__init__()
        if n_embd < 2 or n_embd % 2:
            raise ConfigError(
                f"n_embd is {n_embd}; sinusoidal positions pair sines with cosines and need it even."
            )
        self.n_embd = n_embd
        self._columns = _columns(n_embd)

    def forward(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return (S, n_embd), or (B, S, n_embd) for explicit position_ids; x is (B, S, n_embd)."""
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)
        if not _has_float64(x.device):
            return _encode_by_angle_sum(position_ids, self.n_embd).to(x.dtype)
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        return _encode_in_float64(position_ids, self._columns, dtype).to(x.dtype)

    def extra_repr(self) -> str:
        """Show the width in ``repr``."""
        return f"n_embd={self.n_embd}"


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
