"""Attention: its two forms against a float64 NumPy softmax, and the cache against none."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import MultiHeadAttention
from gpt_onnx.model.attention import (
    AttentionForm,
    DecomposedAttention,
    Heads,
    SdpaAttention,
    causal_mask,
    merge_heads,
    split_heads,
)

FORMS: dict[str, Callable[[torch.Tensor], AttentionForm]] = {
    "sdpa": SdpaAttention,
    "decomposed": DecomposedAttention,
}
SHAPES: dict[str, dict[str, Any]] = {
    "usual": {"n_embd": 24, "n_head": 4},
    "shared heads": {"n_embd": 24, "n_head": 4, "n_kv_head": 2},
    "one head for all": {"n_embd": 24, "n_head": 3, "n_kv_head": 1},
    "wide heads": {"n_embd": 24, "n_head": 2, "head_size": 20},
}


def config(shape: str = "usual") -> GPTConfig:
    return GPTConfig(vocab_size=10, context_length=16, n_layer=1, **SHAPES[shape])


def by_hand(qkv: NDArray[np.float64], allowed: NDArray[np.bool_], made: GPTConfig) -> NDArray[np.float64]:
    """Return attention in float64, one row, one head and one query at a time."""
    batch, length, _ = qkv.shape
    heads, shared, size = made.n_head, made.n_kv_head, made.head_size
    out = np.zeros((batch, length, heads * size))
    for b in range(batch):
        for head in range(heads):
            group = head // (heads // shared)
            query = qkv[b, :, head * size : (head + 1) * size]
            key = qkv[b, :, (heads + group) * size :][:, :size]
            value = qkv[b, :, (heads + shared + group) * size :][:, :size]
            for position in range(length):
                seen = allowed[b, position]
                scores = key[seen] @ query[position] / math.sqrt(size)
                weights = np.exp(scores - scores.max())
                out[b, position, head * size : (head + 1) * size] = weights / weights.sum() @ value[seen]
    return out


def packed(made: GPTConfig, batch: int = 2, length: int = 7) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(batch, length, made.qkv_size)


def form(name: str, tokens: torch.Tensor, mask: torch.Tensor | None = None, past: int = 0) -> AttentionForm:
    return FORMS[name](causal_mask(tokens, mask, past))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_form_equals_float64_by_hand(name: str, shape: str) -> None:
    made = config(shape)
    qkv = packed(made)
    allowed = np.tril(np.ones((2, 7, 7), bool))
    out, _ = form(name, qkv)(qkv, None, Heads.of(made))
    assert np.abs(out.numpy() - by_hand(qkv.double().numpy(), allowed, made)).max() < 2e-6


@pytest.mark.parametrize("name", FORMS)
def test_a_padded_key_is_not_seen(name: str) -> None:
    made = config()
    qkv = packed(made)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])
    allowed = np.tril(np.ones((2, 7, 7), bool)) & mask.bool().numpy()[:, None, :]
    out, _ = form(name, qkv, mask)(qkv, None, Heads.of(made))
    expected = by_hand(qkv[:1, 2:].double().numpy(), allowed[:1, 2:, 2:], made)
    assert np.abs(out[0, 2:].numpy() - expected[0]).max() < 2e-6
    expected = by_hand(qkv[1:, :5].double().numpy(), allowed[1:, :5, :5], made)
    assert np.abs(out[1, :5].numpy() - expected[0]).max() < 2e-6


def test_a_row_that_sees_nothing_stays_finite_in_the_decomposed_form() -> None:
    made = config()
    qkv = packed(made)
    out, _ = form("decomposed", qkv, torch.zeros(2, 7, dtype=torch.int64))(qkv, None, Heads.of(made))
    assert torch.isfinite(out).all()


def test_without_a_mask_attention_is_causal() -> None:
    made = config()
    qkv = packed(made)
    with_mask, _ = form("sdpa", qkv)(qkv, None, Heads.of(made))
    assert torch.allclose(SdpaAttention()(qkv, None, Heads.of(made))[0], with_mask, atol=1e-6)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("split", [1, 3, 6])
def test_the_cache_changes_nothing(name: str, shape: str, split: int) -> None:
    made = config(shape)
    qkv = packed(made)
    whole, (keys, values) = form(name, qkv)(qkv, None, Heads.of(made))
    first, past = form(name, qkv[:, :split])(qkv[:, :split], None, Heads.of(made))
    second, present = form(name, qkv[:, split:], None, split)(qkv[:, split:], past, Heads.of(made))
    assert torch.allclose(torch.cat((first, second), 1), whole, atol=1e-6)
    assert torch.equal(present[0], keys)
    assert torch.equal(present[1], values)
    assert keys.shape == values.shape == (2, made.n_kv_head, 7, made.head_size)


def test_a_past_without_a_mask_stays_causal() -> None:
    made = config()
    qkv = packed(made)
    whole, _ = SdpaAttention()(qkv, None, Heads.of(made))
    _, past = SdpaAttention()(qkv[:, :3], None, Heads.of(made))
    rest, _ = SdpaAttention()(qkv[:, 3:], past, Heads.of(made))
    assert torch.allclose(rest, whole[:, 3:], atol=1e-6)


def test_a_form_does_not_change_the_past() -> None:
    made = config()
    qkv = packed(made)
    _, past = form("decomposed", qkv)(qkv, None, Heads.of(made))
    before = [part.clone() for part in past]
    form("decomposed", qkv, None, 7)(qkv, past, Heads.of(made))
    assert all(torch.equal(one, other) for one, other in zip(before, past, strict=True))


def test_heads_are_packed_as_queries_then_keys_then_values() -> None:
    made = config("shared heads")
    qkv = torch.arange(made.qkv_size, dtype=torch.float32)[None, None]
    query, key, value = split_heads(qkv, Heads.of(made))
    assert query.flatten().tolist() == list(range(24))
    assert key.flatten().tolist() == list(range(24, 36))
    assert value.flatten().tolist() == list(range(36, 48))
    assert torch.equal(merge_heads(query), qkv[..., :24])


def test_the_mask_allows_no_later_and_no_padded_key() -> None:
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    assert causal_mask(tokens, None, 2)[0, 0].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    mask = torch.tensor([[0, 1, 1, 1]])
    assert causal_mask(tokens, mask, 2)[0, 0].int().tolist() == [[0, 1, 1, 0], [0, 1, 1, 1]]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_layer_has_the_shapes_that_the_configuration_says(shape: str) -> None:
    made = config(shape)
    layer = MultiHeadAttention(made)
    width = made.n_head * made.head_size
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "c_attn.weight": (width + 2 * made.n_kv_head * made.head_size, 24),
        "c_proj.weight": (24, width),
        "c_proj.bias": (24,),
    }
    out, (key, value) = layer(torch.zeros(2, 5, 24))
    assert out.shape == (2, 5, 24)
    assert key.shape == value.shape == (2, made.n_kv_head, 5, made.head_size)
