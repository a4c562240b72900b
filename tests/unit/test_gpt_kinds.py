"""Every kind of position in the whole model: caches in chunks, padding on both sides, far positions."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT
from gpt_onnx.train.evaluate import token_loss
from tests.padded_rows import padded_rows

SIZES: dict[str, Any] = {"vocab_size": 50, "context_length": 12, "n_embd": 24, "n_layer": 2, "n_head": 4}
KINDS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"sinusoidal_style": "concatenated"},
    "learned": {"position": "learned"},
    "rotary": {
        "position": "rotary",
        "n_kv_head": 2,
        "norm": "rmsnorm",
        "activation": "swiglu",
        "bias": False,
    },
    "rotary, interleaved": {"position": "rotary", "rope_style": "interleaved", "rope_size": 4},
    "alibi": {"position": "alibi", "n_head": 3, "attention_scale_by_layer": True, "norm_order": "post"},
}
FORMULAS = sorted(set(KINDS) - {"learned"})
IDS = [[3, 1, 4, 1, 5, 9, 2, 6, 5], [49, 0, 0, 49, 7, 8, 9, 10, 11]]
ATOL = 1e-12


def make(kind: str, **changes: Any) -> GPT:
    """A float64 model whose every part matters."""
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(**(SIZES | KINDS[kind] | changes))).double().eval()
    for parameter in gpt.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return gpt


@torch.no_grad()
def logits(gpt: GPT, ids: list[list[int]], **more: Any) -> torch.Tensor:
    out: torch.Tensor = gpt(torch.tensor(ids), **more)[0]
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [[1, 2, 3, 4, 5, 6, 7, 8], [4], [3, 8]])
def test_any_way_of_cutting_the_sequence_gives_the_same_logits(kind: str, cuts: list[int]) -> None:
    gpt, parts, cache = make(kind), [], None
    with torch.no_grad():
        for begin, end in zip([0, *cuts], [*cuts, 9], strict=True):
            out, cache = gpt(torch.tensor(IDS)[:, begin:end], past_key_values=cache)
            parts.append(out)
    torch.testing.assert_close(torch.cat(parts, 1), logits(gpt, IDS), rtol=0, atol=ATOL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_row_equals_its_solo_run(kind: str, side: str) -> None:
    gpt = make(kind)
    rows = [IDS[0], IDS[1][:4], IDS[0][:1]]
    padded, mask, positions = padded_rows(rows, side, 9)
    out = logits(gpt, padded, attention_mask=torch.tensor(mask), position_ids=torch.tensor(positions))
    for number, row in enumerate(rows):
        real = torch.tensor(mask[number], dtype=torch.bool)
        torch.testing.assert_close(out[number][real], logits(gpt, [row])[0], rtol=0, atol=ATOL)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_that_were_padded_go_on_with_the_cache(kind: str, side: str) -> None:
    """Behind right padding the cache has holes, which count for nothing."""
    gpt, short, new = make(kind), IDS[1][:4], [7, 8]
    ahead, behind = (5, 0) if side == "left" else (0, 5)
    row = [13] * ahead + short + [17] * behind
    mask = torch.tensor([[0] * ahead + [1] * 4 + [0] * behind, [1] * 9])
    positions = torch.tensor([[0] * ahead + [0, 1, 2, 3] + [0] * behind, list(range(9))])
    with torch.no_grad():
        _, cache = gpt(torch.tensor([row, IDS[0]]), mask, positions)
        longer = torch.cat((mask, torch.ones(2, 1, dtype=torch.int64)), 1)
        after = torch.tensor([[4], [9]])
        out, _ = gpt(torch.tensor(new).unsqueeze(1), longer, after, cache)
    for number, ids in enumerate(([*short, new[0]], [*IDS[0], new[1]])):
        torch.testing.assert_close(out[number, 0], logits(gpt, [ids])[0, -1], rtol=0, atol=ATOL)


@pytest.mark.parametrize("kind", FORMULAS)
def test_formulas_go_beyond_the_context(kind: str) -> None:
    gpt = make(kind)
    ids = np.random.default_rng(0).integers(0, 50, (1, 40)).tolist()
    whole = logits(gpt, ids)
    assert torch.isfinite(whole).all()
    torch.testing.assert_close(logits(gpt, [ids[0][:30]]), whole[:, :30], rtol=0, atol=ATOL)


def test_learned_positions_do_not() -> None:
    with pytest.raises(InputError, match="the sequence has 13 tokens and the maximum context window is 12"):
        logits(make("learned"), [[1] * 13])


@pytest.mark.parametrize("kind", ["rotary", "rotary, interleaved", "alibi"])
@pytest.mark.parametrize("shift", [1, 1000, 2**20 - 9])
def test_only_distances_matter_to_rotary_and_alibi(kind: str, shift: int) -> None:
    gpt = make(kind)
    moved = logits(gpt, IDS, position_ids=torch.arange(9)[None] + shift)
    torch.testing.assert_close(moved, logits(gpt, IDS), rtol=0, atol=1e-8)


def test_rotary_positions_that_are_given_are_honoured() -> None:
    gpt = make("rotary")
    positions = torch.tensor([[0, 2, 4, 6, 8, 10, 12, 14, 16]])
    assert (logits(gpt, IDS, position_ids=positions) - logits(gpt, IDS)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_near_double(kind: str) -> None:
    gpt = make(kind)
    expected = logits(gpt, IDS)
    found = logits(gpt.float(), IDS)
    assert (found.double() - expected).abs().max() < 1e-4 * expected.abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_every_parameter(kind: str) -> None:
    gpt = make(kind).train()
    out, _ = gpt(torch.tensor(IDS))
    torch.autograd.backward(torch.nn.functional.cross_entropy(out.flatten(0, 1), torch.tensor(IDS).flatten()))
    for name, parameter in gpt.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_can_be_copied_and_pickled(kind: str) -> None:
    gpt = make(kind)
    expected = logits(gpt, IDS)
    assert torch.equal(logits(copy.deepcopy(gpt), IDS), expected)
    assert torch.equal(logits(pickle.loads(pickle.dumps(gpt)), IDS), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_in_bfloat16_is_near_that_in_float32(kind: str) -> None:
    gpt = make(kind).float()
    windows = torch.tensor(IDS)
    with torch.no_grad():
        exact, rough = (float(token_loss(gpt, windows, precision)) for precision in ("fp32", "bf16"))
    assert rough == pytest.approx(exact, rel=0.02)


def test_parts_that_are_not_there_have_no_parameters() -> None:
    names = set(make("rotary", final_norm=False, n_layer=1).state_dict())
    layer = {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_gate", "mlp.c_fc", "mlp.c_proj"}
    assert names == {"wte.weight"} | {f"h.0.{part}.weight" for part in layer}


def test_biases_are_named_one_by_one() -> None:
    names = make("alibi", proj_bias=False, qkv_bias=True, n_layer=1).state_dict()
    biases = {name for name in names if name.endswith("bias")}
    parts = ("ln_1", "attn.c_attn", "ln_2", "mlp.c_fc", "mlp.c_proj")
    assert biases == {f"h.0.{part}.bias" for part in parts} | {"ln_f.bias"}
