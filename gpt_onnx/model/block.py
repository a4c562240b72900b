"""The feed-forward network and the transformer block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.config import GATED_ACTIVATIONS, GPTConfig
from gpt_onnx.model.attention import AttentionForm, KeyValue, MultiHeadAttention
from gpt_onnx.model.norms import make_norm
from gpt_onnx.model.rotary import Rotation

ACTIVATION_FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swiglu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": partial(F.gelu, approximate="tanh"),
}
"""Of a gated activation, the function on the gate."""


class FeedForward(nn.Module):
    """n_embd to d_ff, the activation, and back: ``c_proj(activation(c_fc(x)))``.

    A gated activation has a second projection: ``c_proj(activation(c_gate(x)) * c_fc(x))``.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.c_gate: nn.Linear | None = None
        if config.activation in GATED_ACTIVATIONS:
            self.c_gate = nn.Linear(config.n_embd, config.d_ff, bias=config.mlp_bias)
        self.c_fc = nn.Linear(config.n_embd, config.d_ff, bias=config.mlp_bias)
        self.c_proj = nn.Linear(config.d_ff, config.n_embd, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Take and return (B, S, n_embd)."""
        hidden = self.c_fc(x)
        hidden = self.activation(hidden) if self.c_gate is None else self.activation(self.c_gate(x)) * hidden
        out: Tensor = self.c_proj(hidden)
        return out


class TransformerBlock(nn.Module):
    """Attention, then the feed-forward network, each a branch beside the residual stream.

    Norms stand before the branches, x + f(norm(x)), or after the sums, norm(x + f(x)). Dropout acts on each
    branch in training.
    """

    def __init__(self, config: GPTConfig, layer: int = 0) -> None:
        super().__init__()
        self.ln_1 = make_norm(config)
        self.attn = MultiHeadAttention(config, layer)
        self.ln_2 = make_norm(config)
        self.mlp = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)
        self.norms_first = config.norm_order == "pre"

    def forward(
        self,
        x: Tensor,
        attention: AttentionForm | None = None,
        past: KeyValue | None = None,
        rotation: Rotation | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """Take (B, S, n_embd) and return (B, S, n_embd) and the layer's present keys and values."""
        if self.norms_first:
            attended, present = self.attn(self.ln_1(x), attention, past, rotation)
            x = x + self.dropout(attended)
            return x + self.dropout(self.mlp(self.ln_2(x))), present
        attended, present = self.attn(x, attention, past, rotation)
        x = self.ln_1(x + self.dropout(attended))
        return self.ln_2(x + self.dropout(self.mlp(x))), present
