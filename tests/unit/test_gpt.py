"""The whole model against an independent forward pass in float64 NumPy; cache and padding change nothing."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import erf

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT
from tests.padded_rows import padded_rows

SIZES: dict[str, Any] = {"vocab_size": 50, "context_length": 32, "n_embd": 24, "n_layer": 3, "n_head": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "gpt2": {"position": "learned", "qkv_bias": True, "activation": "gelu_tanh"},
    "free head": {"tie_embeddings": False},
    "free head with bias": {"tie_embeddings": False, "head_bias": True},
    "tied head with bias": {"head_bias": True},
    "scaled": {"embedding_scale": "sqrt"},
    "no bias": {"bias": False, "activation": "relu"},
    "shared heads": {"n_kv_head": 2, "norm_eps": 1e-3},
    "wide heads": {"n_head": 3, "head_size": 12, "n_kv_head": 1, "d_ff": 40},
}
Array = NDArray[np.float64]
IDS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [49, 0, 0, 49, 7, 8, 9, 10, 11]]


def make_model(variant: str = "usual", **changes: Any) -> GPT:
    """A model in evaluation mode with weights large enough for every part to matter."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(**(SIZES | VARIANTS[variant] | changes))).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "ln_" in name and "weight" in name else 0.0, std=0.2)
    return model


def numpy_forward(model: GPT, ids: list[int]) -> Array:
    """Compute logits of one sequence in float64, from the equations and the weights by name."""
    config = model.config
    weights: dict[str, Array] = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}

    def linear(x: Array, name: str) -> Array:
        return np.asarray(x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0))

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config.norm_eps)
        return np.asarray(scaled * weights[f"{name}.weight"] + weights.get(f"{name}.bias", 0.0))

    def activate(x: Array) -> Array:
        if config.activation == "relu":
            return np.asarray(np.maximum(x, 0))
        if config.activation == "gelu":
            return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))

    def attend(x: Array, name: str) -> Array:
        size, heads, shared = config.head_size, config.n_head, config.n_kv_head
        parts = linear(x, f"{name}.c_attn").reshape(len(x), heads + 2 * shared, size)
        out = np.zeros((len(x), heads, size))
        for head in range(heads):
            group = heads + head * shared // heads
            scores = parts[:, head] @ parts[:, group].T / math.sqrt(size)
            scores[np.triu_indices(len(x), 1)] = -np.inf
            chances = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = chances / chances.sum(-1, keepdims=True) @ parts[:, group + shared]
        return linear(out.reshape(len(x), -1), f"{name}.c_proj")

    def positions() -> Array:
        if config.position == "learned":
            return weights["wpe.weight"][: len(ids)]
        column = np.arange(config.n_embd)
        angle = np.arange(len(ids))[:, None] / np.power(10000.0, (column - column % 2) / config.n_embd)
        return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))

    scale = math.sqrt(config.n_embd) if config.embedding_scale == "sqrt" else float(config.embedding_scale)
    x = scale * weights["wte.weight"][ids] + positions()
    for layer in range(config.n_layer):
        x = x + attend(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn")
        inner = activate(linear(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc"))
        x = x + linear(inner, f"h.{layer}.mlp.c_proj")
    x = norm(x, "ln_f")
    if not config.tie_embeddings:
        return linear(x, "lm_head")
    return np.asarray(x @ weights["wte.weight"].T + weights.get("lm_head_bias", 0.0))


@torch.no_grad()
def logits(model: GPT, ids: list[list[int]], **more: Any) -> torch.Tensor:
    out: torch.Tensor = model(torch.tensor(ids), **more)[0]
    return out


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_an_independent_forward_pass_in_float64(variant: str) -> None:
    model = make_model(variant)
    expected = np.stack([numpy_forward(model, row) for row in IDS])
    assert np.abs(logits(model.double(), IDS).numpy() - expected).max() < 1e-10
    assert np.abs(logits(model.float(), IDS).numpy() - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes_and_the_cache_of_every_layer(variant: str) -> None:
    model = make_model(variant)
    out, cache = model(torch.tensor(IDS))
    config = model.config
    assert out.shape == (2, 9, 50)
    assert len(cache) == 3
    for key, value in cache:
        assert key.shape == value.shape == (2, config.n_kv_head, 9, config.head_size)


@settings(deadline=None, max_examples=20)
@given(data=st.data(), variant=st.sampled_from(["usual", "gpt2", "shared heads"]))
def test_any_way_of_cutting_the_sequence_gives_the_same_logits(data: st.DataObject, variant: str) -> None:
    model = make_model(variant)
    cuts = sorted(data.draw(st.sets(st.integers(1, 8))))
    whole = logits(model, IDS)
    parts, cache = [], None
    with torch.no_grad():
        for begin, end in zip([0, *cuts], [*cuts, 9], strict=True):
            out, cache = model(torch.tensor(IDS)[:, begin:end], past_key_values=cache)
            parts.append(out)
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)


def test_forward_is_pure() -> None:
    model = make_model()
    first, cache = model(torch.tensor(IDS)[:, :5])
    before = [(key.clone(), value.clone()) for key, value in cache]
    once = model(torch.tensor(IDS)[:, 5:], past_key_values=cache)[0]
    again = model(torch.tensor(IDS)[:, 5:], past_key_values=cache)[0]
    assert torch.equal(once, again)
    assert all(
        torch.equal(a, b)
        for old, new in zip(before, cache, strict=True)
        for a, b in zip(old, new, strict=True)
    )
    assert torch.equal(model(torch.tensor(IDS)[:, :5])[0], first)


@pytest.mark.parametrize("variant", ["usual", "gpt2", "wide heads"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_row_equals_its_solo_run(variant: str, side: str) -> None:
    model = make_model(variant)
    rows = [IDS[0], IDS[1][:4], IDS[0][:1]]
    padded, mask, positions = padded_rows(rows, side, 9)
    out = logits(model, padded, attention_mask=torch.tensor(mask), position_ids=torch.tensor(positions))
    for number, row in enumerate(rows):
        real = torch.tensor(mask[number], dtype=torch.bool)
        assert torch.allclose(out[number][real], logits(model, [row])[0], atol=1e-5)


def test_what_stands_in_the_padding_changes_no_bit() -> None:
    model = make_model()
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 0, 0]])
    one = logits(model, [[5, 5, *IDS[0][:5], 5, 5]], attention_mask=mask)
    other = logits(model, [[40, 41, *IDS[0][:5], 42, 43]], attention_mask=mask)
    assert torch.equal(one[0, 2:7], other[0, 2:7])


def test_a_later_token_changes_no_earlier_logit() -> None:
    model = make_model()
    changed = [[*IDS[0][:6], 0, 0, 0]]
    assert torch.equal(logits(model, [IDS[0]])[0, :6], logits(model, changed)[0, :6])


def test_sinusoidal_positions_go_beyond_the_context_and_learned_ones_do_not() -> None:
    ids = [[1] * 65]
    model = make_model()
    assert np.abs(logits(model.double(), ids)[0].numpy() - numpy_forward(model, ids[0])).max() < 1e-10
    with pytest.raises(InputError, match="the sequence has 65 tokens and the maximum context window is 32"):
        logits(make_model("gpt2"), ids)


def test_a_cache_does_not_carry_learned_positions_beyond_their_table() -> None:
    model = make_model("gpt2")
    _, cache = model(torch.ones(1, 32, dtype=torch.int64))
    with pytest.raises(InputError, match="position 32 is outside the table of learned positions, 0 to 31"):
        model(torch.ones(1, 1, dtype=torch.int64), past_key_values=cache)


def test_parameters_carry_gpt2s_names() -> None:
    names = set(make_model("gpt2").state_dict())
    layer = {
        f"{module}.{kind}"
        for module in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
        for kind in ("weight", "bias")
    }
    outside = {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"}
    assert names == outside | {f"h.{number}.{name}" for number in range(3) for name in layer}


@pytest.mark.parametrize(
    ("variant", "extra"),
    [
        ("usual", set()),
        ("free head", {"lm_head.weight"}),
        ("free head with bias", {"lm_head.weight", "lm_head.bias"}),
        ("tied head with bias", {"lm_head_bias"}),
    ],
)
def test_a_tied_head_has_no_matrix_of_its_own(variant: str, extra: set[str]) -> None:
    names = {name for name in make_model(variant).state_dict() if name.startswith("lm_head")}
    assert names == extra


def test_initial_weights_are_gpt2s() -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=1000, context_length=64, n_embd=128, n_layer=4, n_head=4))
    assert model.wte.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for name, parameter in model.named_parameters():
        if name.endswith("c_proj.weight"):
            assert parameter.std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.05)
        elif name.endswith("bias"):
            assert not parameter.any()


def test_gradients_reach_every_parameter() -> None:
    model = make_model("gpt2").train()
    out, _ = model(torch.tensor(IDS))
    torch.autograd.backward(torch.nn.functional.cross_entropy(out.flatten(0, 1), torch.tensor(IDS).flatten()))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.any(), name


def test_the_parameter_count_is_that_of_the_state() -> None:
    for variant in VARIANTS:
        model = make_model(variant)
        assert model.parameter_count() == sum(tensor.numel() for tensor in model.state_dict().values())
