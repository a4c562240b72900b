"""The GPT: token embedding plus positions, N blocks, a final norm and the head.

Every kind of part is an entry of a table: positions (gpt_onnx.model.positions), norms, activations.
``forward`` is pure: the cache goes in and comes out. Parameters carry GPT-2's names (``wte``,
``h.0.attn.c_attn``, ``ln_f``, ``lm_head``); a tied head has no parameter of its own.

    >>> model = GPT(GPTConfig(vocab_size=256, context_length=64, n_embd=32, n_layer=2, n_head=4))
    >>> logits, cache = model(torch.zeros(1, 5, dtype=torch.int64))
    >>> logits.shape, len(cache)
    (torch.Size([1, 5, 256]), 2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.model.alibi import token_places
from gpt_onnx.model.attention import AttentionForm, KeyValue, SdpaAttention, causal_mask
from gpt_onnx.model.block import TransformerBlock
from gpt_onnx.model.norms import make_norm
from gpt_onnx.model.positions import BIASES, ENCODINGS, ROTATIONS, make
from gpt_onnx.model.rotary import Rotation


class GPT(nn.Module):
    """A decoder-only transformer as GPTConfig describes it, complete and trainable."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = make(ENCODINGS, config)
        self.rotary = make(ROTATIONS, config)
        self.alibi = make(BIASES, config)
        self.h = nn.ModuleList(TransformerBlock(config, layer) for layer in range(config.n_layer))
        self.ln_f = make_norm(config) if config.final_norm else None
        if not config.tie_embeddings:
            self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=config.head_bias)
        elif config.head_bias:
            self.lm_head_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = nn.Dropout(config.dropout)
        self.apply(_init_weights)
        _scale_residual_projections(self)

    def parameter_count(self) -> int:
        """Return the number of unique parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def embed(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return scaled token embeddings, plus positions where those are added: (B, S, n_embd)."""
        x = self.wte(input_ids)
        if self.config.embedding_factor != 1.0:
            x = x * self.config.embedding_factor
        if self.wpe is not None:
            x = x + self.wpe(x, position_ids)
        out: Tensor = self.dropout(x)
        return out

    def rotation(
        self, x: Tensor, position_ids: Tensor | None = None, past_length: int = 0
    ) -> Rotation | None:
        """Return the tables that turn queries and keys in every layer; None unless positions are rotary.

        Without position_ids, the tokens of x (B, S, n_embd) follow ``past_length`` others.
        """
        if self.rotary is None:
            return None
        rotation: Rotation = self.rotary(x, position_ids, past_length)
        return rotation

    def bias(
        self, tokens: Tensor, attention_mask: Tensor | None = None, past_length: int = 0
    ) -> Tensor | None:
        """Return what is added to the scores of every layer, (1 or B, H, S, T); None unless ALiBi.

        Args:
            tokens: The new tokens, (B, S).
            attention_mask: 1 where a cached or new token counts, (B, T); None where all do.
            past_length: Number of cached tokens.
        """
        if self.alibi is None:
            return None
        places = token_places(tokens, attention_mask, past_length)
        return self.alibi(places[:, past_length:], places, self.wte.weight.dtype)

    def finish(self, x: Tensor) -> Tensor:
        """Return what the head sees: (B, S, n_embd) after the final norm, if there is one."""
        return x if self.ln_f is None else self.ln_f(x)

    def head(self, x: Tensor) -> Tensor:
        """Return logits (..., vocab_size) of normed hidden states (..., n_embd)."""
        if self.config.tie_embeddings:
            return F.linear(x, self.wte.weight, getattr(self, "lm_head_bias", None))
        out: Tensor = self.lm_head(x)
        return out

    def run(
        self,
        input_ids: Tensor,
        attention: AttentionForm,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[KeyValue] | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Compute with a given attention form; ``forward`` is this with the usual one."""
        x = self.embed(input_ids, position_ids)
        rotation = self.rotation(x, position_ids, past_key_values[0][0].shape[2] if past_key_values else 0)
        presents = []
        for layer, block in enumerate(self.h):
            x, present = block(x, attention, past_key_values[layer] if past_key_values else None, rotation)
            presents.append(present)
        return self.head(self.finish(x)), presents

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Sequence[KeyValue] | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Return logits and the cache of every layer.

        Args:
            input_ids: New tokens, (B, S), int64.
            attention_mask: 1 where a cached or new token counts, (B, P + S); None where all do.
            position_ids: Where each new token stands, (B, S); None: the P cached tokens, then onwards.
            past_key_values: The cache that the last call returned, P tokens a layer; None: empty.

        Returns:
            Logits (B, S, vocab_size), and for each layer keys and values (B, n_kv_head, P + S, head_size).

        Raises:
            InputError: on a sequence or a position beyond a learned position table, and on a mask of another
                shape.
        """
        past_length = past_key_values[0][0].shape[2] if past_key_values else 0
        _check_mask(attention_mask, (input_ids.shape[0], past_length + input_ids.shape[1]))
        if position_ids is None and past_length:
            position_ids = (torch.arange(input_ids.shape[1], device=input_ids.device) + past_length)[None]
        plain = attention_mask is None and past_length == 0
        mask = None if plain else causal_mask(input_ids, attention_mask, past_length)
        attention = SdpaAttention(mask, self.bias(input_ids, attention_mask, past_length))
        return self.run(input_ids, attention, position_ids, past_key_values)


def _check_mask(attention_mask: Tensor | None, shape: tuple[int, int]) -> None:
    """Refuse a mask for the new tokens alone, or for one sequence of many; either might broadcast unseen."""
    if attention_mask is not None and attention_mask.shape != shape:
        raise InputError(
            f"attention_mask has the shape {list(attention_mask.shape)}; it must be {list(shape)}: "
            "one row a sequence, one column for each cached and each new token."
        )


def _init_weights(module: nn.Module) -> None:
    """Normal with standard deviation 0.02 for matrices, zero for biases (GPT-2)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _scale_residual_projections(model: GPT) -> None:
    """Shrink what writes into the residual stream by 1 / sqrt(2 n_layer) (GPT-2, section 2.3)."""
    for name, parameter in model.named_parameters():
        if name.endswith("c_proj.weight"):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * model.config.n_layer))
