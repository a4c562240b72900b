"""Eager PyTorch as it runs best: what a bundle is measured against.

    model = EagerGPT(load_model(read_checkpoint("models/sotu")))
    token = model.start([[5, 6, 7]], capacity=64)[0]
    token = model.step([token])[0]

The same weights and modules as in training, under ``torch.inference_mode``: keys and values go into buffers
that are allocated once and written in place (no ``torch.cat`` of the whole cache in each step), attention is
``scaled_dot_product_attention``, which shares key and value heads without copying them, the head sees the
last position only, and positions are encoded once. ``CompiledGPT`` is the same with its step compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT
from gpt_onnx.model.attention import (
    AttentionForm,
    Heads,
    KeyValue,
    causal_mask,
    merge_heads,
    split_heads,
)
from gpt_onnx.model.rotary import Rotation

FLOAT = 4  # bytes


class InPlaceAttention:
    """Attention over buffers (B, K, C, D) of C slots, whose first ``length`` hold tokens.

    Several new tokens at once start an empty cache; a cache that holds tokens takes one at a time.
    """

    def __init__(self, length: int, bias: Tensor | None = None) -> None:
        self.length = length
        self.bias = bias  # (1, H, S, length + S); very negative where a key is later than its query

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm; ``past`` are the buffers, which are returned as they are."""
        assert past is not None
        query, key, value = split_heads(qkv, heads)
        keys, values = past
        end = self.length + query.shape[2]
        keys[:, :, self.length : end] = key
        values[:, :, self.length : end] = value
        out = F.scaled_dot_product_attention(
            query,
            keys[:, :, :end],
            values[:, :, :end],
            self.bias,
            is_causal=self.bias is None and query.shape[2] > 1,
            scale=heads.scale,
            enable_gqa=heads.group_size > 1,
        )
        return merge_heads(out), past


class EagerGPT:
    """A GPT that generates greedily in eager PyTorch; see the module.

    Args:
        gpt: The model.
        device: Where it runs.
        make_attention: Makes the form of attention for a cache that holds so many tokens, and a bias on the
            scores or None. It gets a layer's cache as ``past``, and what it returns as present is the layer's
            cache from then on.
    """

    def __init__(
        self,
        gpt: GPT,
        device: str = "cpu",
        make_attention: Callable[[int, Tensor | None], AttentionForm] = InPlaceAttention,
    ) -> None:
        self.gpt = gpt.to(device=device, dtype=torch.float32).eval()
        self.device = device
        self._make_attention = make_attention
        self.length = 0
        self._buffers: list[KeyValue] = []
        self._capacity = 0
        self._encoding: Tensor | None = None  # (C, n_embd)
        self._rotation: Rotation | None = None  # of C tokens
        self._last_bias: Tensor | None = None  # (1, H, 1, C), of the last token of C
        self._step = self._compute

    @property
    def details(self) -> Mapping[str, Any]:
        """What it is, for the report."""
        return {
            "parameters": self.gpt.parameter_count(),
            "precision": "fp32",
            "cache": "preallocated, written in place",
            "attention": "scaled_dot_product_attention",
            "mode": "inference_mode",
        }

    @property
    def traffic(self) -> Mapping[str, int]:
        """The bytes that a step reads, see gpt_onnx.runtime.bench.facts."""
        gpt, config = self.gpt, self.gpt.config
        tables: list[nn.Module] = [] if config.tie_embeddings else [gpt.wte]
        tables += [] if gpt.wpe is None else [gpt.wpe]
        rows = sum(weight.numel() for table in tables for weight in table.parameters())
        cache = 2 * config.n_layer * config.n_kv_head * config.head_size
        return {
            "weight_bytes": FLOAT * (gpt.parameter_count() - rows),
            "cache_bytes_per_token": FLOAT * cache,
        }

    @property
    def vocab_size(self) -> int | None:
        """Ids are below it."""
        return self.gpt.config.vocab_size

    @property
    def limit(self) -> int | None:
        """The longest sequence; None: any."""
        return self.gpt.config.position_limit

    @torch.inference_mode()
    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """Forget everything, take B prompts of one length and return the most likely next token of each."""
        self._reserve(len(rows), capacity)
        self.length = 0
        return self._choose(self._compute(torch.tensor(rows, device=self.device), 0), len(rows[0]))

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> list[int]:
        """Take one token a row and return the most likely next ones.

        Raises:
            InputError: if there is no room for another token.
        """
        if self.length >= self._capacity:
            raise InputError(f"the cache has room for {self._capacity} tokens and is full; reserve more.")
        return self._choose(self._step(torch.tensor(tokens, device=self.device).unsqueeze(1), self.length), 1)

    def scores(self) -> NDArray[np.float32]:
        """Return the logits (B, V) that the last tokens were chosen from."""
        scores: NDArray[np.float32] = self._logits.cpu().numpy()
        return scores

    def _reserve(self, batch_size: int, capacity: int) -> None:
        """Allocate buffers and encode positions, unless those of before will do."""
        gpt, weight = self.gpt, self.gpt.wte.weight
        config = gpt.config
        if self._buffers and self._buffers[0][0].shape[0] == batch_size and self._capacity >= capacity:
            return
        shape = (batch_size, config.n_kv_head, capacity, config.head_size)
        self._buffers = [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in gpt.h]
        self._capacity = capacity
        x = weight.new_zeros(1, capacity, config.n_embd)
        self._encoding = None if gpt.wpe is None else gpt.wpe(x)
        self._rotation = gpt.rotation(x)
        self._last_bias = gpt.bias(x[:, :1], past_length=capacity - 1)

    def _bias(self, new: Tensor, start: int) -> Tensor | None:
        """Return the bias on the scores of new tokens (B, S), where there is one."""
        if self._last_bias is None:
            return None
        if new.shape[1] == 1:  # distances to the last token, whichever it is
            return self._last_bias[..., self._capacity - start - 1 :]
        bias = self.gpt.bias(new)
        assert bias is not None
        return torch.where(causal_mask(new, None, 0), bias, torch.finfo(bias.dtype).min)

    def _compute(self, input_ids: Tensor, start: int) -> Tensor:
        """Return the logits of the last of new tokens (B, S), of which the first stands at ``start``."""
        gpt, end = self.gpt, start + input_ids.shape[1]
        x = gpt.wte(input_ids)
        if gpt.config.embedding_factor != 1.0:
            x = x * gpt.config.embedding_factor
        if self._encoding is not None:
            x = x + self._encoding[start:end]
        rotation = None if self._rotation is None else self._rotation.slice(start, end)
        attention = self._make_attention(start, self._bias(input_ids, start))
        for layer, block in enumerate(gpt.h):
            x, self._buffers[layer] = block(x, attention, self._buffers[layer], rotation)
        return gpt.head(gpt.finish(x[:, -1]))

    def _choose(self, logits: Tensor, new: int) -> list[int]:
        self._logits = logits
        self.length += new
        tokens: list[int] = logits.argmax(-1).tolist()
        return tokens


class CompiledGPT(EagerGPT):
    """The same with its step compiled by torch.compile, for any length; prompts stay as they are.

    The compiler's own threads and time are spent in the first steps after each new number of sequences, and
    ``details`` tells how long those took.
    """

    def __init__(self, gpt: GPT, device: str = "cpu", backend: str | Callable[..., Any] = "inductor") -> None:
        super().__init__(gpt, device)
        self._step = torch.compile(self._compute, dynamic=True, backend=backend)
        self._seen: dict[tuple[int, int], float] = {}  # sequences and capacity to seconds of the first steps

    @property
    def details(self) -> Mapping[str, Any]:
        """See EagerGPT."""
        return {**super().details, "mode": "torch.compile", "compile_s": round(sum(self._seen.values()), 1)}

    def step(self, tokens: Sequence[int]) -> list[int]:
        """See EagerGPT."""
        key = (len(tokens), self._capacity)
        before = time.perf_counter()
        chosen = super().step(tokens)
        self._seen.setdefault(key, time.perf_counter() - before)
        return chosen
