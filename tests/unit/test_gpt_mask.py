"""A mask that does not fit the cached and the new tokens is refused, not broadcast."""

from __future__ import annotations

import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT

CONFIG = GPTConfig(vocab_size=23, context_length=16, n_embd=8, n_layer=1, n_head=2)


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(CONFIG).eval()


@pytest.mark.parametrize("shape", [(2, 1), (1, 3), (2, 4), (2, 3, 1), (3,)])
def test_a_mask_of_another_shape_names_both_shapes(model: GPT, shape: tuple[int, ...]) -> None:
    mask = torch.ones(shape, dtype=torch.int64)
    with pytest.raises(InputError, match=r"must be \[2, 3\]"):
        model(torch.zeros(2, 3, dtype=torch.int64), mask)


def test_a_mask_of_the_new_token_alone_is_refused_beside_a_cache(model: GPT) -> None:
    ids = torch.zeros(2, 3, dtype=torch.int64)
    _, cache = model(ids)
    with pytest.raises(InputError, match=r"shape \[2, 1\]; it must be \[2, 4\]"):
        model(ids[:, :1], torch.ones(2, 1, dtype=torch.int64), past_key_values=cache)
    logits, _ = model(ids[:, :1], torch.ones(2, 4, dtype=torch.int64), past_key_values=cache)
    torch.testing.assert_close(logits, model(torch.zeros(2, 4, dtype=torch.int64))[0][:, -1:])


def test_the_check_does_not_stand_in_the_way_of_a_trace(model: GPT) -> None:
    length = torch.export.Dim("length", min=2, max=16)
    example = (torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64))
    program = torch.export.export(model, example, dynamic_shapes=({1: length}, {1: length}))
    ids = torch.arange(14).reshape(2, 7)
    torch.testing.assert_close(program.module()(ids, torch.ones_like(ids))[0], model(ids)[0])
