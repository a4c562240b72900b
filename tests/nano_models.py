"""nanoGPT and minGPT, written again as small as they go: the names and the mathematics of the originals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]
M = TypeVar("M", bound=nn.Module)


def tensor(value: Any) -> Tensor:
    """What a module returns, to a checker of types."""
    assert isinstance(value, Tensor)
    return value


def new_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Masked softmax attention written out, over (B, T, C)."""
    batch, length, width = q.shape
    q, k, v = (part.view(batch, length, heads, width // heads).transpose(1, 2) for part in (q, k, v))
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // heads)
    scores = scores.masked_fill(torch.ones(length, length).tril() == 0, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)


class LayerNorm(nn.Module):
    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, bias: bool, mask: int) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)
        self.heads = heads
        if mask:
            self.register_buffer("bias", torch.ones(mask, mask).tril().view(1, 1, mask, mask))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(x).split(x.shape[-1], dim=2)
        return tensor(self.c_proj(attend(q, k, v, self.heads)))


class MLP(nn.Module):
    def __init__(self, width: int, bias: bool, activation: Activation) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return tensor(self.c_proj(self.activation(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, bias: bool, mask: int, activation: Activation) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = LayerNorm(width, bias), LayerNorm(width, bias)
        self.attn, self.mlp = Attention(width, heads, bias, mask), MLP(width, bias, activation)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return tensor(x + self.mlp(self.ln_2(x)))


class NanoGPT(nn.Module):
    """nanoGPT; with ``tied=False`` and a mask it is minGPT of after July 2022."""

    def __init__(
        self,
        *,
        vocab_size: int = 97,
        block_size: int = 160,
        n_layer: int = 3,
        n_head: int = 4,
        n_embd: int = 64,
        bias: bool = True,
        mask: bool = False,
        tied: bool = True,
        activation: Activation = F.gelu,
    ) -> None:
        super().__init__()
        args = (n_embd, n_head, bias, block_size if mask else 0, activation)
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList([Block(*args) for _ in range(n_layer)]),
                "ln_f": LayerNorm(n_embd, bias),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        if tied:
            self.transformer["wte"].weight = self.lm_head.weight
        self.model_args: dict[str, Any] = {
            "n_layer": n_layer,
            "n_head": n_head,
            "n_embd": n_embd,
            "block_size": block_size,
            "bias": bias,
            "vocab_size": vocab_size,
            "dropout": 0.0,
        }

    def forward(self, idx: Tensor) -> Tensor:
        parts: Any = self.transformer
        x = parts["wte"](idx) + parts["wpe"](torch.arange(idx.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return tensor(self.lm_head(parts["ln_f"](x)))


class OldAttention(nn.Module):
    def __init__(self, width: int, heads: int, mask: int) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(mask, mask).tril().view(1, 1, mask, mask))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        return tensor(self.proj(attend(self.query(x), self.key(x), self.value(x), self.heads)))


class OldBlock(nn.Module):
    def __init__(self, width: int, heads: int, mask: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = OldAttention(width, heads, mask)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln1(x))
        return tensor(x + self.mlp(self.ln2(x)))


class OldMinGPT(nn.Module):
    """minGPT of before July 2022."""

    def __init__(
        self, vocab_size: int = 97, block_size: int = 160, n_layer: int = 3, n_head: int = 4, n_embd: int = 64
    ) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, n_embd)
        self.pos_emb = nn.Parameter(torch.zeros(1, block_size, n_embd))
        self.blocks = nn.Sequential(*[OldBlock(n_embd, n_head, block_size) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.tok_emb(idx) + self.pos_emb[:, : idx.shape[1]]
        return tensor(self.head(self.ln_f(self.blocks(x))))


def randomised(model: M, seed: int = 0) -> M:
    """Give every parameter a value that matters, and return the module for evaluation."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
    return model.eval()
