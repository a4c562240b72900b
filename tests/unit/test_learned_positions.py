"""Learned positions beyond the table: a sentence in eager PyTorch, and no obstacle to a trace."""

from __future__ import annotations

import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT, LearnedPositionalEmbedding

CONFIG = GPTConfig(vocab_size=23, context_length=16, n_embd=8, n_layer=2, n_head=2, position="learned")


@pytest.fixture
def table() -> LearnedPositionalEmbedding:
    torch.manual_seed(0)
    return LearnedPositionalEmbedding(16, 8)


def test_explicit_positions_are_rows_of_the_table(table: LearnedPositionalEmbedding) -> None:
    rows = table(torch.zeros(2, 2, 8), torch.tensor([[15, 0], [3, 3]]))
    assert torch.equal(rows[0, 0], table.weight[15])
    assert torch.equal(rows[1], table.weight[[3, 3]])


@pytest.mark.parametrize("position", [16, 10_000, -1])
def test_a_position_outside_the_table_is_named_with_the_limit(
    table: LearnedPositionalEmbedding, position: int
) -> None:
    with pytest.raises(InputError, match=rf"position {position} .* 0 to 15 .* window is 16"):
        table(torch.zeros(1, 2, 8), torch.tensor([[0, position]]))


def test_a_longer_sequence_is_named_with_the_limit(table: LearnedPositionalEmbedding) -> None:
    with pytest.raises(InputError, match=r"17 tokens .* window is 16"):
        table(torch.zeros(1, 17, 8))


def test_a_full_cache_refuses_one_more_token() -> None:
    model = GPT(CONFIG).eval()
    _, cache = model(torch.zeros(1, 16, dtype=torch.int64))
    with pytest.raises(InputError, match="position 16"):
        model(torch.zeros(1, 1, dtype=torch.int64), past_key_values=cache)


def test_half_precision_and_short_integers_are_checked_as_well(table: LearnedPositionalEmbedding) -> None:
    positions = torch.tensor([[0, 15]], dtype=torch.int32)
    assert table.half()(torch.zeros(1, 2, 8).half(), positions).dtype == torch.float16
    with pytest.raises(InputError, match="position 16"):
        table(torch.zeros(1, 2, 8).half(), positions + 1)


def test_explicit_positions_are_traced_with_a_dynamic_length(table: LearnedPositionalEmbedding) -> None:
    length = torch.export.Dim("length", min=1, max=16)
    example = (torch.zeros(2, 5, 8), torch.arange(5).expand(2, 5))
    program = torch.export.export(table, example, dynamic_shapes=({1: length}, {1: length}))
    positions = torch.tensor([[7, 8, 15], [0, 1, 2]])
    assert torch.equal(program.module()(torch.zeros(2, 3, 8), positions), table.weight[positions])


def test_explicit_positions_of_the_meta_device_are_not_looked_at() -> None:
    table = LearnedPositionalEmbedding(16, 8).to("meta")
    ids = torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert table(torch.zeros(2, 3, 8, device="meta"), ids).shape == (2, 3, 8)
