"""What is traced: one module for each graph of a bundle, with its inputs, outputs and promised dims.

The names are those that optimum, transformers.js, onnxruntime-genai and our runtime agree on (docs/graph.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ExportError
from gpt_onnx.model import GPT
from gpt_onnx.model.attention import AttentionForm, DecomposedAttention, KeyValue, causal_mask

from .attention import (
    GroupQueryAttention,
    InPlaceGroupQueryAttention,
    SlotAttention,
    padded_head_size,
)
from .options import ExportOptions
from .targets import Target, find_target, fitted

BATCH = "batch_size"
SEQUENCE = "sequence_length"
PAST = "past_sequence_length"
TOTAL = f"{PAST} + {SEQUENCE}"

Dim = str | int
Dims = tuple[Dim, ...]

FormMaker = Callable[[GPT, Tensor, Tensor, int, int], AttentionForm]
"""Makes a form from the model, input_ids, attention_mask, the past length and the cache's head size."""


def _decomposed(
    gpt: GPT, ids: Tensor, mask: Tensor | None, past_length: int, head_size: int
) -> AttentionForm:
    return DecomposedAttention(causal_mask(ids, mask, past_length), gpt.bias(ids, mask, past_length))


def _slots(gpt: GPT, ids: Tensor, mask: Tensor, past_length: int, head_size: int) -> AttentionForm:
    return SlotAttention(mask, gpt.bias(ids, mask, mask.shape[1] - 1))  # the new token has the last place


GROWING_FORMS: Mapping[str, FormMaker] = {
    "gqa": lambda gpt, ids, mask, past_length, head_size: GroupQueryAttention(mask, head_size),
    "decomposed": _decomposed,
}
"""Attention over a cache that is as long as its content, by the target's attention."""

SLOT_FORMS: Mapping[str, FormMaker] = {
    "gqa": lambda gpt, ids, mask, past_length, head_size: InPlaceGroupQueryAttention(mask, head_size),
    "decomposed": _slots,
}
"""Attention over a cache of frozen slots, by the target's attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A module to trace and the promise that its graph must keep."""

    role: str
    """"model", "prefill" or "decode"."""
    module: nn.Module
    inputs: Mapping[str, Dims]
    """Dims of each input, in the order of the module's flattened arguments."""
    outputs: Mapping[str, Dims]
    sequence_limit: int | None
    """The longest sequence that the module takes; None where there is no limit."""

    @property
    def is_static(self) -> bool:
        """Whether every promised dim is a number."""
        every = (*self.inputs.values(), *self.outputs.values())
        return all(isinstance(dim, int) for dims in every for dim in dims)


class CachedForward(nn.Module):
    """input_ids, attention_mask, position_ids and the cache in; logits and the cache out.

    ``make_form`` makes the attention form of one call; without a past, the cache starts empty.
    """

    def __init__(self, gpt: GPT, make_form: FormMaker, target: Target) -> None:
        super().__init__()
        self.gpt = gpt
        self.make_form = make_form
        self.cache_head_size = padded_head_size(gpt.config.head_size, target.head_size_multiple)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[KeyValue]]:
        """Return logits and the present of each layer; ``past`` is flat: key, value, key, value, ..."""
        pairs = list(zip(past[::2], past[1::2], strict=True)) if past else None
        past_length = past[0].shape[2] if past else 0
        form = self.make_form(self.gpt, input_ids, attention_mask, past_length, self.cache_head_size)
        return self.gpt.run(input_ids, form, position_ids, pairs)


class PlainForward(nn.Module):
    """input_ids in, logits out: no cache."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.gpt = gpt

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits (B, S, V)."""
        return self.gpt.run(input_ids, _decomposed(self.gpt, input_ids, None, 0, 0))[0]


def _cache_names(prefix: str, config: GPTConfig) -> list[str]:
    return [f"{prefix}.{layer}.{part}" for layer in range(config.n_layer) for part in ("key", "value")]


def _cache(prefix: str, config: GPTConfig, batch: Dim, length: Dim, target: Target) -> dict[str, Dims]:
    size = padded_head_size(config.head_size, target.head_size_multiple)
    return dict.fromkeys(_cache_names(prefix, config), (batch, config.n_kv_head, length, size))


def _token_inputs(batch: Dim, length: Dim, total: Dim) -> dict[str, Dims]:
    return {"input_ids": (batch, length), "attention_mask": (batch, total), "position_ids": (batch, length)}


def _dynamic(gpt: GPT, options: ExportOptions, target: Target) -> list[Graph]:
    config, batch = gpt.config, options.frozen("batch_size") or BATCH
    past = _cache("past_key_values", config, batch, PAST, target)
    present = _cache("present", config, batch, TOTAL, target)
    return [
        Graph(
            role="model",
            module=CachedForward(gpt, GROWING_FORMS[target.attention], target),
            inputs=_token_inputs(batch, SEQUENCE, TOTAL) | past,
            outputs={"logits": (batch, SEQUENCE, config.vocab_size)} | present,
            sequence_limit=config.position_limit,
        )
    ]


def _static(gpt: GPT, options: ExportOptions, target: Target) -> list[Graph]:
    config, batch, length = gpt.config, options.frozen("batch_size") or BATCH, options.frozen("seq_len")
    assert length is not None
    present = _cache("present", config, batch, length, target)
    return [
        Graph(
            role="prefill",
            module=CachedForward(gpt, GROWING_FORMS[target.attention], target),
            inputs=_token_inputs(batch, length, length),
            outputs={"logits": (batch, length, config.vocab_size)} | present,
            sequence_limit=config.position_limit,
        ),
        Graph(
            role="decode",
            module=CachedForward(gpt, SLOT_FORMS[target.attention], target),
            inputs=_token_inputs(batch, 1, length) | _cache("past_key_values", config, batch, length, target),
            outputs={"logits": (batch, 1, config.vocab_size)} | present,
            sequence_limit=config.position_limit,
        ),
    ]


def plain_graph(module: nn.Module, options: ExportOptions, vocab_size: int, limit: int | None) -> Graph:
    """Describe the graph input_ids -> logits of any module that returns logits (B, S, V)."""
    batch, length = options.frozen("batch_size") or BATCH, options.frozen("seq_len") or SEQUENCE
    return Graph(
        role="model",
        module=module,
        inputs={"input_ids": (batch, length)},
        outputs={"logits": (batch, length, vocab_size)},
        sequence_limit=limit,
    )


def _plain(gpt: GPT, options: ExportOptions, target: Target) -> list[Graph]:
    return [plain_graph(PlainForward(gpt), options, gpt.config.vocab_size, gpt.config.position_limit)]


LAYOUTS = {"dynamic": _dynamic, "static": _static, "plain": _plain}


def graphs_of(gpt: GPT, options: ExportOptions) -> Sequence[Graph]:
    """Return the graphs that the options ask for.

    Raises:
        ExportError: if the frozen length is beyond a learned position table.
    """
    check_frozen_length(options, gpt.config.position_limit)
    return LAYOUTS[options.layout](gpt, options, fitted(find_target(options.target), gpt.config))


def check_frozen_length(options: ExportOptions, limit: int | None) -> None:
    """Refuse a frozen length that the model cannot compute.

    Raises:
        ExportError: if it is beyond the limit.
    """
    length = options.frozen("seq_len")
    if length is not None and limit is not None and length > limit:
        raise ExportError(
            f"--seq-len is {length} and the model's positions end at {limit}; "
            f"freeze at most {limit}, or use dynamic."
        )


BATCH_EXAMPLES = (61, 67, 71, 73, 79, 83, 101, 103, 107, 109, 113, 127)
LONGEST_EXAMPLE = 97


def example_sizes(taken: set[int], limit: int | None, frozen: int | None = None) -> dict[str, int]:
    """Choose batch, sequence and past lengths whose numbers occur nowhere in the model.

    0 and 1 would be specialised by the tracer; a size that the model has too could not be told from a
    constant of its own. Tracing computes with shapes alone, so that large sizes cost nothing.

    Args:
        taken: The sizes of the model.
        limit: The longest sequence that the module takes; None where there is no limit.
        frozen: The one length of a frozen graph, for which only a batch is chosen.

    Raises:
        ExportError: if there is no choice.
    """
    for batch in BATCH_EXAMPLES:
        if frozen is not None and not {batch, batch * frozen} & taken:
            return {BATCH: batch}
        for sequence in () if frozen else range(min(limit or LONGEST_EXAMPLE, LONGEST_EXAMPLE), 1, -1):
            past = sequence + 6
            if not {batch, sequence, past, past + sequence, batch * sequence} & taken and batch != sequence:
                return {BATCH: batch, SEQUENCE: sequence, PAST: past, TOTAL: past + sequence}
    if frozen is not None:
        raise ExportError("no example batch differs from all sizes of the model; freeze another --seq-len.")
    longest = min(limit or LONGEST_EXAMPLE, LONGEST_EXAMPLE)
    raise ExportError(
        f"no example length from 2 to {longest} differs from all sizes of the model; "
        f"freeze it with --seq-len {limit or 'N'}."
    )


def example_shape(dims: Dims, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the example's shape for promised dims."""
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in dims)


def example_tensor(name: str, shape: tuple[int, ...]) -> Tensor:
    """Return zeros for the cache, ones for the mask, and zeros for ids and positions."""
    if name.startswith("past_key_values"):
        return torch.zeros(shape)
    return torch.full(shape, int(name == "attention_mask"), dtype=torch.int64)
