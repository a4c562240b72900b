"""The numbers of training: the schedule, bits per byte, and what the optimizer decays."""

import itertools
import math

import numpy as np
import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import GPT
from gpt_onnx.train.evaluate import bits_per_byte, mean_loss, token_loss
from gpt_onnx.train.optimizer import learning_rate_factor, make_optimizer

CONFIG = GPTConfig(vocab_size=64, context_length=8, n_embd=16, n_layer=2, n_head=2, dropout=0.5)


def make_model() -> GPT:
    torch.manual_seed(1)
    return GPT(CONFIG)


def test_a_uniform_model_over_bytes_needs_eight_bits_per_byte() -> None:
    assert bits_per_byte(math.log(256), tokens=1000, byte_count=1000) == pytest.approx(8.0)


def test_tokens_of_two_bytes_halve_the_bits() -> None:
    assert bits_per_byte(math.log(256), tokens=500, byte_count=1000) == pytest.approx(4.0)


@pytest.mark.parametrize("length", [2, 8, 9, 10, 17, 100, 200])
def test_mean_loss_equals_float64_probabilities_multiplied_window_by_window(length: int) -> None:
    """Independently: log2 of each id's probability in float64, from windows of at most 8 predictions."""
    model = make_model().eval()
    ids = np.random.default_rng(0).integers(0, 64, length).astype(np.uint16)
    bits = 0.0
    with torch.no_grad():
        for start in range(0, length - 1, 8):
            window = torch.from_numpy(ids[start : start + 9].astype(np.int64))
            logits = model(window[None, :-1])[0][0].numpy().astype(np.float64)
            for row, target in zip(logits, window[1:].tolist(), strict=True):
                probabilities = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
                bits -= math.log2(probabilities[target])
    nats = mean_loss(model, ids)
    assert bits_per_byte(nats, length - 1, 321) == pytest.approx(bits / 321, rel=1e-6)


def test_mean_loss_ignores_dropout_and_restores_the_mode() -> None:
    model = make_model().train()
    ids = np.arange(40, dtype=np.uint16)
    assert mean_loss(model, ids) == mean_loss(model, ids)
    assert model.training


def test_bf16_loss_is_close_to_the_float32_one() -> None:
    model = make_model().eval()
    windows = torch.arange(36).view(4, 9) % 64
    exact, rounded = (token_loss(model, windows, precision).item() for precision in ("fp32", "bf16"))
    assert rounded == pytest.approx(exact, rel=0.02)
    assert rounded != exact


def test_the_learning_rate_rises_linearly_then_falls_along_a_cosine() -> None:
    factors = [learning_rate_factor(step, 100, 0.1, 0.2) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert factors[9] == max(factors) == 1.0
    assert factors[54] == pytest.approx(0.6)  # half way down, 45 steps after the top
    assert factors[99] == pytest.approx(0.2)
    assert all(later < earlier for earlier, later in itertools.pairwise(factors[9:]))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_schedule_of_a_very_short_run_is_finite_and_positive(steps: int) -> None:
    for warmup in (0.0, 0.5, 1.0):
        for step in range(steps):
            assert 0.0 < learning_rate_factor(step, steps, warmup, 0.1) <= 1.0


def test_only_matrices_are_decayed() -> None:
    model = make_model()
    decayed, free = make_optimizer(model, 0.1).param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(parameter.ndim == 2 for parameter in decayed["params"])
    assert all(
        "ln_" in names[id(parameter)] or "bias" in names[id(parameter)] for parameter in free["params"]
    )
    assert len(decayed["params"]) + len(free["params"]) == len(names)


def test_one_step_of_the_optimizer_equals_adamw_by_hand() -> None:
    parameter = torch.nn.Parameter(torch.tensor([[1.0, -2.0]], dtype=torch.float32))
    module = torch.nn.Module()
    module.weight = parameter
    optimizer = make_optimizer(module, 0.1)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    parameter.grad = torch.tensor([[0.5, 3.0]])
    optimizer.step()
    decayed = np.array([[1.0, -2.0]]) * (1 - 0.01 * 0.1)
    expected = decayed - 0.01 * np.sign([[0.5, 3.0]])  # m / sqrt(v) is the sign at the first step
    assert parameter.detach().numpy() == pytest.approx(expected, abs=1e-6)
