"""Sines of positions, right at any length: one column for each frequency and phase.

    column j of position p is sin(p x frequency j + phase j)

A cosine is a sine with the phase pi / 2, and a sine with the phase pi is its negative, so that every table
that positions need comes out of one operator. float32 angles are wrong by 0.06 rad at position 10^6; here
the angle is made in float64 and brought into [0, 2 pi) before it is cast, and results are within 2e-6 of
float64 up to position 2^20, in eager PyTorch and in the exported graph.

    >>> Sines((1.0, 1.0), (0.0, QUARTER))(torch.zeros(1, dtype=torch.int64), torch.float32)
    tensor([[0., 1.]])
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

DIGIT_BITS = 10  # positions are written in base 1024 where there is no float64
DIGITS = 4  # enough for positions below 2^40
QUARTER = math.pi / 2
"""The phase of a cosine."""
HALF = math.pi
"""The phase of a sine's negative."""


def has_float64(device: torch.device) -> bool:
    """Return whether float64 tensors can be made there (not on MPS); asked by trying it."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device) + 1
    except Exception:  # TypeError on MPS, RuntimeError elsewhere, anything at all under a dispatch mode
        return False
    return True


@functools.lru_cache(maxsize=8)
def _digit_tables(frequencies: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each (DIGITS, 1024, frequencies), of every base-1024 digit's own angle."""
    weights = 2.0 ** (DIGIT_BITS * np.arange(DIGITS))
    positions = weights[:, None] * np.arange(2**DIGIT_BITS)  # (DIGITS, 1024)
    angles = positions[..., None] * np.array(frequencies)
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return torch.from_numpy(cosines).to(device), torch.from_numpy(sines).to(device)


def _turns(position_ids: Tensor, frequencies: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Return cosines and sines without float64 by the angle-sum identity, turning by each digit in turn.

    cos(a + b) = cos a cos b - sin a sin b, sin(a + b) = sin a cos b + cos a sin b.
    """
    cosines, sines = _digit_tables(frequencies, position_ids.device)
    mask = 2**DIGIT_BITS - 1
    cosine, sine = cosines[0][position_ids & mask], sines[0][position_ids & mask]  # (..., frequencies)
    for digit in range(1, DIGITS):
        index = (position_ids >> (DIGIT_BITS * digit)) & mask
        cos_d, sin_d = cosines[digit][index], sines[digit][index]
        cosine, sine = cosine * cos_d - sine * sin_d, sine * cos_d + cosine * sin_d
    return cosine, sine


def by_angle_sum(position_ids: Tensor, frequencies: Sequence[float], phases: Sequence[float]) -> Tensor:
    """Return the columns where there is no float64: each frequency is turned once, then given its phases."""
    unique = tuple(dict.fromkeys(frequencies))
    which = torch.tensor([unique.index(frequency) for frequency in frequencies], device=position_ids.device)
    cosine, sine = _turns(position_ids, unique)
    constant = functools.partial(torch.tensor, dtype=torch.float32, device=position_ids.device)
    along, across = (constant([f(phase) for phase in phases]) for f in (math.cos, math.sin))
    return sine[..., which] * along + cosine[..., which] * across


@dataclass(frozen=True, slots=True)
class Sines:
    """The columns of a table, one frequency in radians a token and one phase in radians for each."""

    frequencies: tuple[float, ...]
    phases: tuple[float, ...]
    float32_angles: bool = False
    """Whether position x frequency is rounded to float32, as in programs that know no better."""

    def __call__(self, position_ids: Tensor, dtype: torch.dtype) -> Tensor:
        """Return (..., columns) of positions (...); half precision is computed in float32 and then cast."""
        if not has_float64(position_ids.device):
            return by_angle_sum(position_ids, self.frequencies, self.phases).to(dtype)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return torch.sin(self._angles(position_ids).to(wide)).to(dtype)

    def _angles(self, position_ids: Tensor) -> Tensor:
        """Return angles in [0, 2 pi), in float64.

        Every constant is a float64 tensor: the ONNX exporter would store a Python float as float32.
        """
        constant = functools.partial(torch.tensor, dtype=torch.float64, device=position_ids.device)
        frequency, phase, turn = constant(self.frequencies), constant(self.phases), constant(2 * math.pi)
        position = position_ids.unsqueeze(-1)
        if self.float32_angles:
            angle = (position.to(torch.float32) * frequency.to(torch.float32)).to(torch.float64) + phase
        else:
            angle = position.to(torch.float64) * frequency + phase
        return angle - torch.floor(angle / turn) * turn
