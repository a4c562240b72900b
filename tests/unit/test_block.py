"""The block and its parts: shapes at every step, parameter counts, and each equation."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import erf

from gpt_onnx.config import ACTIVATIONS, GPTConfig
from gpt_onnx.model import FeedForward, MultiHeadAttention, TransformerBlock
from gpt_onnx.model.block import ACTIVATION_FUNCTIONS
from gpt_onnx.model.norms import make_norm

Array = NDArray[np.float64]

WIDE = GPTConfig(vocab_size=100, context_length=64, n_embd=512, n_layer=1, n_head=8, d_ff=2048)
SMALL = GPTConfig(vocab_size=100, context_length=64, n_embd=16, n_layer=1, n_head=2, d_ff=40)


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_parts_have_the_published_numbers_of_parameters() -> None:
    block = TransformerBlock(WIDE)
    assert count(block) == 3_150_848
    assert count(block.attn) == 1_049_088
    assert count(block.mlp) == 2_099_712
    assert count(block.ln_1) + count(block.ln_2) == 2_048


def test_heads_of_64_leave_every_shape_as_it_was() -> None:
    """512 wide, 8 heads of 64, 2048 inner: the sizes of each step, by hooks on the modules."""
    block = TransformerBlock(WIDE).eval()
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        block.get_submodule(name).register_forward_hook(
            lambda _module, _inputs, output, name=name: shapes.update({name: tuple(output.shape)})
        )
    out, (key, value) = block(torch.randn(2, 10, 512))
    assert shapes == {
        "ln_1": (2, 10, 512),
        "attn.c_attn": (2, 10, 1536),
        "attn.c_proj": (2, 10, 512),
        "ln_2": (2, 10, 512),
        "mlp.c_fc": (2, 10, 2048),
        "mlp.c_proj": (2, 10, 512),
    }
    assert out.shape == (2, 10, 512)
    assert key.shape == value.shape == (2, 8, 10, 64)


def test_a_block_is_two_residual_branches_each_after_its_norm() -> None:
    torch.manual_seed(0)
    block = TransformerBlock(SMALL).eval()
    x = torch.randn(2, 5, 16)
    middle = x + block.attn(block.ln_1(x))[0]
    assert torch.equal(block(x)[0], middle + block.mlp(block.ln_2(middle)))


def test_a_block_whose_branches_write_nothing_is_the_identity() -> None:
    block = TransformerBlock(SMALL)
    for projection in (block.attn.c_proj, block.mlp.c_proj):
        torch.nn.init.zeros_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    x = torch.randn(1, 3, 16)
    assert torch.equal(block(x)[0], x)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_feed_forward_equals_float64_by_hand(activation: str) -> None:
    """The activations as published: max(x, 0); x Phi(x) by erf; its tanh approximation; x sigmoid(x).

    Gated ones ("GLU Variants Improve Transformer"): the activated gate times another projection.
    """
    torch.manual_seed(0)
    module = FeedForward(SMALL.replace(activation=activation))
    x = torch.randn(3, 4, 16)
    for part in module.children():
        torch.nn.init.normal_(part.weight)  # type: ignore[arg-type]

    def linear(part: torch.nn.Linear, x: Array) -> Array:
        weight, bias = (p.detach().double().numpy() for p in (part.weight, part.bias))
        return np.asarray(x @ weight.T + bias)

    values = x.double().numpy()
    hidden = linear(module.c_fc, values)
    if activation in GATED:
        assert module.c_gate is not None
        hidden = FUNCTIONS[GATED[activation]](linear(module.c_gate, values)) * hidden
    else:
        hidden = FUNCTIONS[activation](hidden)
    expected = linear(module.c_proj, hidden)
    assert np.abs(module(x).detach().numpy() - expected).max() < 1e-6 * np.abs(expected).max()


def test_the_two_gelus_differ() -> None:
    x = torch.linspace(-3, 3, 101)
    difference = ACTIVATION_FUNCTIONS["gelu"](x) - ACTIVATION_FUNCTIONS["gelu_tanh"](x)
    assert 1e-4 < difference.abs().max() < 1e-3


def test_every_activation_of_the_configuration_exists() -> None:
    assert set(ACTIVATION_FUNCTIONS) == set(ACTIVATIONS)


def test_the_norm_follows_its_equation_and_its_epsilon() -> None:
    x = 1e-3 * torch.randn(4, 16)
    module = make_norm(SMALL.replace(norm_eps=1e-3))
    values = x.double().numpy()
    expected = (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-3)
    assert np.abs(module(x).detach().numpy() - expected).max() < 1e-6


def test_biases_are_where_the_configuration_wants_them() -> None:
    def names(**changes: bool) -> set[str]:
        return {
            name
            for name, _ in TransformerBlock(SMALL.replace(**changes)).named_parameters()
            if "bias" in name
        }

    usual = {"ln_1.bias", "attn.c_proj.bias", "ln_2.bias", "mlp.c_fc.bias", "mlp.c_proj.bias"}
    assert names() == usual
    assert names(qkv_bias=True) == usual | {"attn.c_attn.bias"}
    assert names(bias=False) == set()


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    block = TransformerBlock(SMALL.replace(dropout=0.5))
    x = torch.randn(1, 3, 16)
    assert not torch.equal(block.train()(x)[0], block(x)[0])
    assert torch.equal(block.eval()(x)[0], block(x)[0])


def test_attention_without_a_form_is_causal() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(SMALL)
    x = torch.randn(1, 6, 16)
    out = layer(x)[0]
    x[0, 4:] = 0
    assert torch.allclose(layer(x)[0][0, :4], out[0, :4], atol=1e-7)
