"""A layer called by itself, with the cache that it returned, continues where it stopped."""

from __future__ import annotations

import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import TransformerBlock

CONFIG = GPTConfig(vocab_size=23, context_length=16, n_embd=12, n_layer=1, n_head=4, n_kv_head=2, head_size=5)


@pytest.mark.parametrize("chunks", [[1, 1, 1, 1, 1, 1, 1], [3, 4], [5, 1, 1], [1, 6]])
def test_a_block_fed_in_chunks_equals_the_block_fed_at_once(chunks: list[int]) -> None:
    torch.manual_seed(0)
    block = TransformerBlock(CONFIG).double().eval()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    whole, (keys, values) = block(x)
    parts, past = [], None
    for chunk in torch.split(x, chunks, dim=1):
        part, past = block(chunk, None, past)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-12)
    assert past is not None
    torch.testing.assert_close(past[0], keys, rtol=0, atol=1e-12)
    torch.testing.assert_close(past[1], values, rtol=0, atol=1e-12)
