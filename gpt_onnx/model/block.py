"""The feed-forward network and the transformer block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.config import GPTConfig
from gpt_onnx.model.attention import AttentionForm, KeyValue, MultiHeadAttention

ACTIVATION_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


def layer_norm(config: GPTConfig) -> nn.LayerNorm:
    """Make one LayerNorm over n_embd as the configuration says."""
    return nn.LayerNorm(config.n_embd, eps=config.norm_eps, bias=config.bias)


class FeedForward(nn.Module):
    """n_embd to d_ff, the activation, and back: ``c_proj(activation(c_fc(x)))``."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.c_fc = nn.Linear(config.n_embd, config.d_ff, bias=config.bias)
        self.c_proj = nn.Linear(config.d_ff, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Take and return (B, S, n_embd)."""
        out: Tensor = self.c_proj(self.activation(self.c_fc(x)))
        return out


class TransformerBlock(nn.Module):
    """Pre-norm: x + MHA(LN1(x)), then x + FFN(LN2(x)); dropout on each branch in training."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = layer_norm(config)
        self.attn = MultiHeadAttention(config)
        self.ln_2 = layer_norm(config)
        self.mlp = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, attention: AttentionForm | None = None, past: KeyValue | None = None
    ) -> tuple[Tensor, KeyValue]:
        """Take (B, S, n_embd) and return (B, S, n_embd) and the layer's present keys and values."""
        attended, present = self.attn(self.ln_1(x), attention, past)
        x = x + self.dropout(attended)
        return x + self.dropout(self.mlp(self.ln_2(x))), present
