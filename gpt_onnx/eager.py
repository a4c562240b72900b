"""Eager PyTorch as it runs best: what a bundle is measured against.

    model = EagerGPT(load_model(read_checkpoint("models/sotu")))
    token = model.start([[5, 6, 7]], capacity=64)[0]
    token = model.step([token])[0]

The same weights and modules as in training, under ``torch.inference_mode``: keys and values go into buffers
that are allocated once and written in place (no ``torch.cat`` of the whole cache in each step), attention is
``scaled_dot_product_attention``, which shares key and value heads without copying them, the head sees the
last position only, and positions are encoded once. A module of anybody's has no cache that we know of: it
computes the whole sequence for each token.

``python -m gpt_onnx.eager`` is the process that gpt_onnx.runtime.bench starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.errors import InputError, ProviderError
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
from gpt_onnx.runtime.bench.serve import serve

NOTES = (
    "nothing is known of a cache in the source, so eager PyTorch computes the whole sequence for each token, "
    "and its process holds what the exporter imports as well",
)


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
        return self._choose(torch.tensor(rows, device=self.device))

    @torch.inference_mode()
    def step(self, tokens: Sequence[int]) -> list[int]:
        """Take one token a row and return the most likely next ones.

        Raises:
            InputError: if there is no room for another token.
        """
        if self.length >= self._capacity:
            raise InputError(f"the cache has room for {self._capacity} tokens and is full; reserve more.")
        return self._choose(torch.tensor(tokens, device=self.device).unsqueeze(1))

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

    def _bias(self, new: Tensor) -> Tensor | None:
        """Return the bias on the scores of new tokens (B, S), where there is one."""
        if self._last_bias is None:
            return None
        if new.shape[1] == 1:  # distances to the last token, whichever it is
            return self._last_bias[..., self._capacity - self.length - 1 :]
        bias = self.gpt.bias(new)
        assert bias is not None
        return torch.where(causal_mask(new, None, 0), bias, torch.finfo(bias.dtype).min)

    def _choose(self, input_ids: Tensor) -> list[int]:
        gpt, start, end = self.gpt, self.length, self.length + input_ids.shape[1]
        x = gpt.wte(input_ids)
        if gpt.config.embedding_factor != 1.0:
            x = x * gpt.config.embedding_factor
        if self._encoding is not None:
            x = x + self._encoding[start:end]
        rotation = None if self._rotation is None else self._rotation.slice(start, end)
        attention = self._make_attention(start, self._bias(input_ids))
        for layer, block in enumerate(gpt.h):
            x, self._buffers[layer] = block(x, attention, self._buffers[layer], rotation)
        self._logits = gpt.head(gpt.finish(x[:, -1]))
        self.length = end
        tokens: list[int] = self._logits.argmax(-1).tolist()
        return tokens


class EagerModule:
    """Any module that maps ids (B, S) to logits, computing the whole sequence for each token."""

    vocab_size: int | None = None
    limit: int | None = None

    def __init__(
        self, module: nn.Module, find_logits: Callable[[object], Tensor], device: str = "cpu"
    ) -> None:
        self.module = module.to(device).eval()
        self.device = device
        self._find_logits = find_logits

    @property
    def details(self) -> Mapping[str, Any]:
        """What it is, for the report."""
        parameters = sum(parameter.numel() for parameter in self.module.parameters())
        return {
            "parameters": parameters,
            "cache": "none",
            "attention": "the module's",
            "mode": "inference_mode",
        }

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """See EagerGPT."""
        self._ids = torch.tensor(rows, device=self.device)
        return self._choose()

    def step(self, tokens: Sequence[int]) -> list[int]:
        """See EagerGPT."""
        new = torch.tensor(tokens, device=self.device).unsqueeze(1)
        self._ids = torch.cat((self._ids, new), dim=1)
        return self._choose()

    def scores(self) -> NDArray[np.float32]:
        """See EagerGPT."""
        scores: NDArray[np.float32] = self._logits.float().cpu().numpy()
        return scores

    @torch.inference_mode()
    def _choose(self) -> list[int]:
        logits = self._find_logits(self.module(self._ids))
        self._logits = logits if logits.dim() == 2 else logits[:, -1]
        tokens: list[int] = self._logits.argmax(-1).tolist()
        return tokens


class EagerContender:
    """Eager PyTorch as a contender of gpt_onnx.runtime.bench.

    Raises:
        ProviderError: if the device is not to be had.
        CheckpointError, InputError: if the source cannot be used.
    """

    def __init__(self, source: str, device: str, threads: int, **described: str) -> None:
        if device != "cpu" and not torch.cuda.is_available():
            raise ProviderError(f"PyTorch {torch.__version__} sees no CUDA card and cannot run on {device}.")
        torch.set_num_threads(threads)
        self._threads = threads
        self._model = load_eager(source, device, **described)
        self.start, self.step, self.scores = self._model.start, self._model.step, self._model.scores

    @property
    def facts(self) -> Mapping[str, Any]:
        """See gpt_onnx.runtime.bench.contender.Contender."""
        return {
            "device": self._model.device,
            "threads": self._threads,
            "vocab_size": self._model.vocab_size,
            "limit": self._model.limit,
            "notes": NOTES if isinstance(self._model, EagerModule) else (),
            "versions": {"torch": torch.__version__, "numpy": metadata.version("numpy")},
            "details": {**self._model.details, **_card(self._model.device)},
        }


def _card(device: str) -> dict[str, str]:
    return {} if device == "cpu" else {"card": torch.cuda.get_device_name(device)}


def load_eager(source: str, device: str = "cpu", **described: str) -> EagerGPT | EagerModule:
    """Load a checkpoint, or run FILE.py:NAME for its module.

    Args:
        source: What to load.
        device: Where it runs.
        **described: Files that describe a checkpoint, ``config`` and ``names``; a module needs neither here.

    Raises:
        CheckpointError, InputError, ExportError: if the source cannot be used.
    """
    if ".py:" not in source:
        return EagerGPT(load_model(read_checkpoint(source, tokenizer="none", **described)), device)
    from gpt_onnx.export.gate import logits_in  # only here: the exporter's imports take time and memory
    from gpt_onnx.export.user_code import load_module

    module = load_module(source)
    return EagerGPT(module, device) if isinstance(module, GPT) else EagerModule(module, logits_in, device)


def main() -> None:
    """Serve one source to the process that started this one."""
    serve(lambda order: EagerContender(**{key: value for key, value in order.items() if key != "do"}))


if __name__ == "__main__":
    main()
