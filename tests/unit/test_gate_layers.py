"""The reference a layer at a time: the same numbers as the whole model's, and never more of it in float64."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpt_onnx.config import GPTConfig
from gpt_onnx.export.gate import lending, shelf
from gpt_onnx.export.gate.blocked_alibi import BlockedAlibi
from gpt_onnx.export.gate.lending import Weights
from gpt_onnx.export.gate.oracle import Oracle
from gpt_onnx.export.gate.ours import GptReference
from gpt_onnx.export.gate.reference import Units
from gpt_onnx.model import GPT
from gpt_onnx.model.alibi import Alibi
from gpt_onnx.model.attention import Heads, SdpaAttention

IDS = tuple(int(token) for token in np.random.default_rng(0).integers(0, 31, 20))
LLAMA = {"position": "rotary", "norm": "rmsnorm", "activation": "swiglu", "n_kv_head": 2, "bias": False}
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal, tied": {},
    "learned, free head with bias": {"position": "learned", "tie_embeddings": False, "head_bias": True},
    "alibi, tied head with bias": {"position": "alibi", "head_bias": True},
    "as Llama": LLAMA | {"tie_embeddings": False},
    "norms behind, none at the end": {"norm_order": "post", "final_norm": False},
}


def make_gpt(**changes: Any) -> GPT:
    torch.manual_seed(0)
    sizes = {"vocab_size": 31, "context_length": 32, "n_embd": 16, "n_layer": 3, "n_head": 4}
    gpt = GPT(GPTConfig(**(sizes | changes)))
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return gpt.eval()


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Models count as small, or as large: a head is lent in blocks of its rows, caches wait in a file."""
    if request.param == "large":
        monkeypatch.setattr(lending, "SMALL", 0)
        monkeypatch.setattr(lending, "HEAD_STAYS", 0)
        monkeypatch.setattr(lending, "HEAD_ROWS", 16 * 10)
        monkeypatch.setattr(shelf, "LARGE", 0)
    return str(request.param)


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_at_a_time_gives_the_numbers_of_the_whole(kind: str) -> None:
    gpt = make_gpt(**KINDS[kind])
    whole = copy.deepcopy(gpt).double()
    with torch.no_grad():
        logits, cache = whole(torch.tensor([IDS]))
    first, second = GptReference(gpt).compute_all([IDS, IDS[:7]])
    np.testing.assert_allclose(first.logits(), logits[0].numpy(), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(second.logits(), logits[0, :7].numpy(), rtol=1e-11, atol=1e-12)
    keys = cache[2][0][0].transpose(0, 1).numpy()
    np.testing.assert_allclose(first.caches[4].r64[: len(IDS)], keys, rtol=1e-11, atol=1e-12)
    assert first.unit().peak > 0


def test_units_hardly_depend_on_what_counts_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head in blocks rounds otherwise in float32, and no more than that."""
    gpt = make_gpt(**LLAMA)
    for units in (Units(), Units(beside=16), Units(float32_angles=True)):
        wanted = GptReference(gpt).compute(IDS, units).unit()
        with monkeypatch.context() as patch:
            patch.setattr(lending, "SMALL", 0)
            patch.setattr(lending, "HEAD_STAYS", 0)
            found = GptReference(gpt).compute(IDS, units).unit()
        assert found.peak == pytest.approx(wanted.peak, rel=0.5)


def test_one_layer_of_a_large_model_has_weights_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "SMALL", 0)
    gpt = make_gpt(**LLAMA)
    programs: list[GPT] = []
    most = 0

    def read(name: str) -> Tensor:
        nonlocal most
        layers = {
            key.split(".")[1]
            for program in programs
            for key, weight in program.named_parameters()
            if key.startswith("h.") and not weight.is_meta
        }
        most = max(most, len(layers))
        return gpt.get_parameter(name).detach()

    reference = GptReference.of_weights(gpt.config, read, is_original=False)
    programs += [reference._f32, reference._f64]
    reference.compute(IDS)
    assert most == 1
    assert all(weight.is_meta for name, weight in reference._f64.named_parameters() if name.startswith("h."))


def test_a_models_own_weights_are_not_copied_in_float32() -> None:
    gpt = make_gpt()
    weights = Weights.of_gpt(gpt)
    single, double = weights.program(torch.float32), weights.program(torch.float64)
    with weights.lent("h.1.", single, double):
        name = "h.1.mlp.c_fc.weight"
        assert single.get_parameter(name).data_ptr() == gpt.get_parameter(name).data_ptr()
        assert double.get_parameter(name).dtype == torch.float64
        assert single.get_parameter("h.0.mlp.c_fc.weight").is_meta


def test_alibi_in_blocks_is_alibi_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_onnx.export.gate.blocked_alibi.SCORES", 3 * 4 * 20)
    heads = Heads(n_head=4, n_kv_head=2, head_size=5, scale=0.4)
    qkv = torch.randn(
        1, 20, heads.packed * 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    alibi, places = Alibi(4), torch.arange(20).unsqueeze(0)
    found, present = BlockedAlibi(alibi)(qkv, None, heads)
    wanted, cache = SdpaAttention(bias=alibi(places, places, torch.float64))(qkv, None, heads)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)
    assert all(torch.equal(one, other) for one, other in zip(present, cache, strict=True))


@pytest.mark.parametrize("right", [0, 3, 9])
def test_greedy_tokens_do_not_depend_on_what_is_guessed(right: int) -> None:
    reference = GptReference(make_gpt(**LLAMA))
    wanted = reference.greedy(IDS[:4], 9)

    def draft(ids: tuple[int, ...], count: int) -> list[int]:
        done = len(ids) - 4
        return [token if done + at < right else (token + 1) % 31 for at, token in enumerate(wanted[done:])]

    assert reference.greedy(IDS[:4], 9, draft) == wanted


def test_float32_angles_cost_more_the_further_a_token_stands() -> None:
    gpt = make_gpt(**LLAMA, n_embd=64, head_size=16)
    with torch.no_grad():
        for layer in range(gpt.config.n_layer):
            gpt.get_parameter(f"h.{layer}.attn.c_attn.weight").mul_(2.0)
    reference = GptReference(gpt)
    ids = tuple(int(token) for token in np.random.default_rng(1).integers(0, 31, 1500))
    exact, usual = (reference.compute(ids, Units(float32_angles=angles)).errors for angles in (False, True))
    assert usual.unit(slice(8)).peak < 3 * exact.unit(slice(8)).peak
    assert usual.unit(slice(1000, 1500)).rms > 3 * exact.unit(slice(1000, 1500)).rms


def test_what_is_held_costs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    gpt = make_gpt(**LLAMA)
    monkeypatch.setattr(lending, "SMALL", 0)

    def read(name: str) -> Tensor:
        reads.append(name)
        return gpt.get_parameter(name).detach()

    oracle = Oracle(GptReference.of_weights(gpt.config, read, is_original=False))
    oracle.hold(IDS, IDS[::-1])
    once = len(reads)
    oracle.truths([IDS[:5], IDS[::-1][:7], IDS])
    assert len(reads) == once
    oracle.truths([(1, 2), (3, 4), IDS[:3]])
    layers = [name for name in reads[once:] if name == "h.0.mlp.c_fc.weight"]
    assert len(layers) == 1
