"""A GPT of somebody's own: a module, the table of its names, and its configuration."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB, WIDTH, HEADS, CONTEXT = 61, 32, 4, 160


class Layer(nn.Module):
    """A block as its maker calls the parts: attention with one matrix each, and a network."""

    def __init__(self, activation: Any) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.asks, self.keys, self.says = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mixes = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, s, _ = x.shape
        h = self.before_attention(x)
        q, k, v = (m(h).view(b, s, HEADS, -1).transpose(1, 2) for m in (self.asks, self.keys, self.says))
        scores = (q @ k.transpose(-2, -1)) / (WIDTH // HEADS) ** 0.5
        weights = scores.masked_fill(mask[:s, :s] == 0, float("-inf")).softmax(dim=-1)
        x = x + self.mixes((weights @ v).transpose(1, 2).reshape(b, s, WIDTH))
        out: Tensor = x + self.narrow(self.activation(self.wide(self.before_network(x))))
        return out


class Mine(nn.Module):
    """A GPT of somebody's, with learned positions and a mask as a buffer."""

    def __init__(self, activation: Any = F.gelu, *, last_only: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.stack = nn.ModuleList(Layer(activation) for _ in range(2))
        self.end = nn.LayerNorm(WIDTH)
        self.answer = nn.Linear(WIDTH, VOCAB, bias=False)
        self.register_buffer("seen", torch.ones(CONTEXT, CONTEXT).tril())
        self.last_only = last_only

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.stack:
            x = layer(x, self.seen)
        out: Tensor = self.answer(self.end(x[:, -1:] if self.last_only else x))
        return out


NAMES = """
ignore = ["seen"]
[names]
"words.weight" = "wte.weight"
"places.weight" = "wpe.weight"
"end.weight" = "ln_f.weight"
"end.bias" = "ln_f.bias"
"answer.weight" = "lm_head.weight"
""" + "".join(
    f'"stack.{{layer}}.{theirs}.{kind}" = "h.{{layer}}.{ours}.{kind}"\n'
    for theirs, ours in {
        "before_attention": "ln_1",
        "asks": "attn.q",
        "keys": "attn.k",
        "says": "attn.v",
        "mixes": "attn.c_proj",
        "before_network": "ln_2",
        "wide": "mlp.c_fc",
        "narrow": "mlp.c_proj",
    }.items()
    for kind in ("weight", "bias")
)


CONFIG = """
n_head = 4
context_length = 160
position = "learned"
norm_order = "pre"
norm_eps = 1e-5
activation = "gelu"
attention_scale = "head_size"
embedding_scale = 1.0
"""


def mine(activation: Any = F.gelu, *, last_only: bool = False) -> Mine:
    """A module whose every weight matters."""
    torch.manual_seed(3)
    module = Mine(activation, last_only=last_only).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            scale = 0.4 if "asks" in name or "keys" in name else 0.2
            parameter.add_(scale * torch.randn(parameter.shape))
    return module
