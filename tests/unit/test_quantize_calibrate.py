"""Calibration: each weight meets the inputs that it will have, in every kind of model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError, InputError
from gpt_onnx.export.gate import lending
from gpt_onnx.export.quantize import calibrate
from gpt_onnx.export.quantize.calibrate import LOOKED_UP, calibrated
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.quantized import Quantized
from gpt_onnx.export.quantize.quantizers import quantize
from gpt_onnx.model import GPT

SIZES: dict[str, Any] = {"vocab_size": 48, "context_length": 40, "n_embd": 32, "n_layer": 2, "n_head": 4}
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal, tied": {"embedding_scale": "sqrt", "head_bias": True},
    "learned, untied, all biases": {
        "position": "learned",
        "tie_embeddings": False,
        "head_bias": True,
        "qkv_bias": True,
    },
    "rotary, grouped, gated": {
        "position": "rotary",
        "n_kv_head": 2,
        "norm": "rmsnorm",
        "activation": "swiglu",
        "bias": False,
    },
    "alibi, norms after": {"position": "alibi", "norm_order": "post", "tie_embeddings": False},
    "no norm at the end, wide heads": {"final_norm": False, "head_size": 16, "d_ff": 48},
}
GRID = Grid(bits=4, block_size=16)
LENGTHS = (40, 1, 17)


def make(kind: str) -> GPT:
    """A model whose every part matters."""
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(**(SIZES | KINDS[kind]))).eval()
    for parameter in gpt.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return gpt


def sequences() -> list[list[int]]:
    random = np.random.default_rng(0)
    return [random.integers(0, 48, length).tolist() for length in LENGTHS]


def grids_of(gpt: GPT) -> dict[str, Grid]:
    """All matrices but learned positions."""
    return {name: GRID for name, weight in gpt.named_parameters() if weight.ndim == 2 and "wpe" not in name}


def run(gpt: GPT, grids: Mapping[str, Grid] | None = None, **more: Any) -> Mapping[str, Quantized]:
    grids = grids_of(gpt) if grids is None else grids
    read = {name: weight.detach() for name, weight in gpt.named_parameters()}
    return calibrated(gpt.config, read.__getitem__, grids, more.pop("ids", sequences()), **more)


def put(gpt: GPT, quantized: Mapping[str, Quantized]) -> GPT:
    """Give a model the weights that the integers mean."""
    for name, weight in quantized.items():
        gpt.get_parameter(name).data = torch.from_numpy(weight.dequantized())
    return gpt


@torch.no_grad()
def moments(gpt: GPT, ids: list[list[int]]) -> dict[str, Any]:
    """Return the sum of x x^T of what every projection and the head see in a whole forward pass."""
    sums: dict[str, Any] = {}

    def add(name: str, x: torch.Tensor) -> None:
        rows = x.reshape(-1, x.shape[-1]).double()
        sums[name] = sums.get(name, 0) + rows.T @ rows

    for name, module in gpt.h.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, x, name=f"h.{name}.weight": add(name, x[0]))
    head = gpt.head

    def seen_head(x: torch.Tensor) -> torch.Tensor:
        add("head", x)
        return head(x)

    gpt.head = seen_head  # type: ignore[method-assign]
    for sequence in ids:
        gpt(torch.tensor([sequence]))
    return sums


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_meets_the_inputs_that_it_will_have(kind: str, monkeypatch: Any) -> None:
    """They are those of the finished model: what stands before a weight is quantised before it."""
    seen: dict[str, Any] = {}

    def spy(name: str, weight: Any, grid: Grid, hessian: Any, *, called: str) -> Quantized:
        seen[called] = hessian
        return quantize("rtn", weight, grid, called=called)

    monkeypatch.setattr(calibrate, "quantize", spy)
    gpt = make(kind)
    before = moments(make(kind), sequences())
    after = moments(put(gpt, run(gpt)), sequences())
    if gpt.config.tie_embeddings:
        table = before["head"]
        table += LOOKED_UP * table.diagonal().mean() * torch.eye(32)
        np.testing.assert_allclose(seen.pop("wte.weight"), table, rtol=1e-4, atol=1e-3)
    else:
        assert seen.pop("wte.weight") is None
        np.testing.assert_allclose(seen.pop("lm_head.weight"), after["head"], rtol=1e-4, atol=1e-3)
    for name, hessian in seen.items():
        np.testing.assert_allclose(hessian, after[name], rtol=1e-4, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_nearer_than_by_rounding(kind: str) -> None:
    gpt = make(kind)
    ids = np.random.default_rng(1).integers(0, 48, (12, 40))
    grids = {name: grid for name, grid in grids_of(gpt).items() if name.startswith("h.")}
    ours = put(make(kind), run(gpt, grids, ids=ids.tolist()))
    rounded = {
        name: quantize("rtn", gpt.get_parameter(name).detach().numpy(), grid) for name, grid in grids.items()
    }
    with torch.no_grad():
        exact, near, far = (m(torch.tensor(ids))[0] for m in (gpt, ours, put(make(kind), rounded)))
    assert (near - exact).square().mean() < 0.8 * (far - exact).square().mean()


def test_weights_that_come_a_layer_at_a_time_give_the_same(monkeypatch: Any) -> None:
    gpt = make("rotary, grouped, gated")
    whole = run(gpt)
    monkeypatch.setattr(lending, "SMALL", 0)
    monkeypatch.setattr(lending, "HEAD_STAYS", 0)
    streamed = run(gpt)
    assert all(np.array_equal(streamed[name].packed, whole[name].packed) for name in whole)


def test_only_what_was_asked_for_is_quantised_and_progress_counts_it() -> None:
    told: list[tuple[str, int, int]] = []
    names = ["h.1.mlp.c_proj.weight", "h.0.attn.c_attn.weight"]
    grids = {names[0]: Grid(bits=8, block_size=32), names[1]: GRID}
    done = run(make("sinusoidal, tied"), grids, progress=lambda *step: told.append(step))
    assert {name: weight.grid for name, weight in done.items()} == grids
    assert told == [(names[1], 1, 2), (names[0], 2, 2)]


@pytest.mark.parametrize("name", ["ln_f.weight", "h.2.attn.c_attn.weight", "h.0.attn.c_attn.bias"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        run(make("sinusoidal, tied"), {name: GRID})


@pytest.mark.parametrize("ids", [[], [[]], [[1, 2], []]])
def test_no_tokens_are_refused(ids: Any) -> None:
    with pytest.raises(InputError, match="no tokens"):
        run(make("sinusoidal, tied"), ids=ids)


@pytest.mark.parametrize("token", [-1, 48])
def test_another_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(InputError, match=f"token id {token}; .* 0 to 47"):
        run(make("sinusoidal, tied"), ids=[[1, 2], [token]])
