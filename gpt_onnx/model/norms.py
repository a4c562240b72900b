"""Norms over the last dim, in the dtype of their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from gpt_onnx.config import GPTConfig


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, 2019).

    Written in the operators that ONNX Runtime fuses into one: a square, a mean, a sum, a root, a quotient.
    """

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Take and return (..., size)."""
        mean_square = x.pow(2.0).mean(dim=-1, keepdim=True)
        return x / torch.sqrt(mean_square + self.eps) * self.weight

    def extra_repr(self) -> str:
        """Show the size and the epsilon in ``repr``."""
        return f"{self.weight.shape[0]}, eps={self.eps}"


Norm = nn.LayerNorm | RMSNorm

NORMS: Mapping[str, Callable[[GPTConfig], Norm]] = {
    "layernorm": lambda config: nn.LayerNorm(config.n_embd, eps=config.norm_eps, bias=config.norm_bias),
    "rmsnorm": lambda config: RMSNorm(config.n_embd, config.norm_eps),
}


def make_norm(config: GPTConfig) -> Norm:
    """Make one norm over n_embd as the configuration says."""
    return NORMS[config.norm](config)
