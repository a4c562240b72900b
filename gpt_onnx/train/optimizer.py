"""AdamW on two groups of parameters, and the learning rate over time."""

from __future__ import annotations

import math

import torch
from torch import nn

BETAS = (0.9, 0.95)


def make_optimizer(model: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """Return AdamW with weight decay on matrices only; the learning rate is set at each step."""
    parameters = list(model.parameters())
    groups = [
        {
            "params": [parameter for parameter in parameters if parameter.ndim >= 2],
            "weight_decay": weight_decay,
        },
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=BETAS, fused=True)


def learning_rate_factor(step: int, total_steps: int, warmup: float, final: float) -> float:
    """Return the factor on the highest learning rate at a step, counted from 0.

    It rises linearly over the warm-up to 1 and falls along half a cosine to ``final`` at the last step.
    """
    warmup_steps = max(1, round(warmup * total_steps))
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step + 1 - warmup_steps) / max(1, total_steps - warmup_steps)
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of every group."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
