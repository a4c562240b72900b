"""Rotary positions: tables against float64 NumPy at any length, and what turning keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import GPT
from gpt_onnx.model import sines as sines_module
from gpt_onnx.model.positions import SinusoidalPositionalEncoding, with_float32_angles
from gpt_onnx.model.rotary import RotaryPositions, turn_packed
from gpt_onnx.rope import RopeScaling

TOLERANCE = 2e-6
FAR = 2**20
POSITIONS = [0, 1, 2, 63, 1023, 1024, 65535, 65537, 999_983, FAR - 1, FAR]
Angled = RotaryPositions | SinusoidalPositionalEncoding
Array = NDArray[np.float64]
KINDS: dict[str, dict[str, Any]] = {
    "half": {},
    "interleaved": {"rope_style": "interleaved"},
    "half, partial": {"rope_size": 6},
    "interleaved, partial": {"rope_style": "interleaved", "rope_size": 6},
    "scaled": {"rope_scaling": RopeScaling(kind="linear", factor=4.0), "rope_theta": 500.0},
}


def config(**changes: Any) -> GPTConfig:
    sizes: dict[str, Any] = {"vocab_size": 31, "context_length": 16, "n_embd": 24, "n_layer": 2, "n_head": 2}
    return GPTConfig(**(sizes | {"head_size": 10, "position": "rotary"} | changes))


def pairs_of(made: GPTConfig) -> list[tuple[int, int]]:
    """The two elements of each pair, from the definitions."""
    half = made.rope_size // 2
    if made.rope_style == "half":
        return [(i, i + half) for i in range(half)]
    return [(2 * i, 2 * i + 1) for i in range(half)]


def angles(positions: NDArray[np.int64], made: GPTConfig) -> Array:
    """(..., pairs): position / (factor theta^(2i / size))."""
    factor = made.rope_scaling.factor if made.rope_scaling else 1.0
    exponent = 2 * np.arange(made.rope_size // 2) / made.rope_size
    return np.asarray(positions, np.float64)[..., None] / (factor * made.rope_theta**exponent)


def turned(x: Array, positions: NDArray[np.int64], made: GPTConfig) -> Array:
    """Turn heads (S, H, D), one pair at a time, in float64."""
    out = x.copy()
    angle = angles(positions, made)
    for pair, (a, b) in enumerate(pairs_of(made)):
        cosine, sine = np.cos(angle[:, None, pair]), np.sin(angle[:, None, pair])
        out[..., a] = x[..., a] * cosine - x[..., b] * sine
        out[..., b] = x[..., b] * cosine + x[..., a] * sine
    return out


def turn(x: torch.Tensor, positions: list[int], made: GPTConfig) -> torch.Tensor:
    """Turn heads (S, H, D) with the module."""
    embedded = torch.zeros(1, len(positions), made.n_embd, dtype=x.dtype)
    rotation = RotaryPositions(made)(embedded, torch.tensor([positions]))
    out: torch.Tensor = rotation.turn(x[None])[0]
    return out


@pytest.fixture(params=[True, False], ids=["float64", "no float64"])
def device_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to make a table: with float64, and as on a device that has none."""
    if not request.param:
        monkeypatch.setattr(sines_module, "has_float64", lambda device: False)


@pytest.mark.parametrize("kind", KINDS)
def test_turning_is_the_formula_at_every_magnitude(kind: str, device_kind: None) -> None:
    made = config(**KINDS[kind])
    x = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (len(POSITIONS), 3, 10)))
    found = turn(x.float(), POSITIONS, made).double().numpy()
    expected = turned(x.numpy(), np.array(POSITIONS), made)
    assert np.abs(found - expected).max() < 2 * TOLERANCE  # a sum of two products with numbers up to 1


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_right_to_two_millionths_up_to_a_million_tokens(kind: str, device_kind: None) -> None:
    made = config(**KINDS[kind])
    positions = np.unique(
        np.concatenate([2 ** np.arange(21), np.random.default_rng(1).integers(0, FAR, 500)])
    )
    x = torch.zeros(1, len(positions), made.n_embd)
    rotation = RotaryPositions(made)(x, torch.from_numpy(positions)[None])
    cosine, sine = (table[0, :, 0].double().numpy() for table in rotation[:2])
    angle = angles(positions, made)
    for pair, (a, b) in enumerate(pairs_of(made)):
        for element, sign in ((a, -1), (b, 1)):
            assert np.abs(cosine[:, element] - np.cos(angle[:, pair])).max() < TOLERANCE
            assert np.abs(sine[:, element] - sign * np.sin(angle[:, pair])).max() < TOLERANCE


def test_float64_is_turned_in_float64() -> None:
    made = config()
    x = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (len(POSITIONS), 3, 10)))
    found = turn(x, POSITIONS, made)
    assert found.dtype == torch.float64
    assert np.abs(found.numpy() - turned(x.numpy(), np.array(POSITIONS), made)).max() < 1e-9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_only_rounds_the_tables(dtype: torch.dtype) -> None:
    x = torch.zeros(1, 1, 24)
    position = torch.tensor([[999_983]])
    found = RotaryPositions(config())(x.to(dtype), position)
    expected = RotaryPositions(config())(x, position)
    for half, single in zip(found[:2], expected[:2], strict=True):
        assert half.dtype == dtype
        torch.testing.assert_close(half, single.to(dtype), rtol=0, atol=0)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)))
def test_turning_keeps_every_norm(data: st.DataObject, kind: str) -> None:
    position = data.draw(st.integers(0, FAR))
    x = torch.from_numpy(np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(1, 4, 10)))
    out = turn(x, [position], config(**KINDS[kind]))
    torch.testing.assert_close(out.norm(dim=-1), x.norm(dim=-1), rtol=1e-9, atol=0)


@settings(deadline=None, max_examples=30)
@given(
    query=st.integers(0, FAR),
    key=st.integers(0, FAR),
    shift=st.integers(0, FAR),
    kind=st.sampled_from(sorted(KINDS)),
)
def test_a_score_depends_on_the_distance_alone(query: int, key: int, shift: int, kind: str) -> None:
    made = config(**KINDS[kind])
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(2, 1, 10)))

    def score(at: int, of: int) -> float:
        one, other = turn(x, [at, of], made)
        return float((one * other).sum())

    assert score(query + shift, key + shift) == pytest.approx(score(query, key), abs=1e-7)


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_what_does_not_turn_is_left_as_it_is_to_the_bit(style: str) -> None:
    x = torch.randn(3, 2, 10)
    out = turn(x, [0, 7, FAR], config(rope_size=6, rope_style=style))
    assert torch.equal(out[..., 6:], x[..., 6:])
    assert not torch.equal(out[1:, :, :6], x[1:, :, :6])


def test_queries_and_keys_of_the_packed_projection_turn_and_values_do_not() -> None:
    made = config(n_head=3, n_kv_head=1)
    qkv = torch.randn(2, 4, made.qkv_size)
    rotation = RotaryPositions(made)(torch.zeros(2, 4, 24))
    out = turn_packed(qkv, rotation, 4)
    assert out.shape == qkv.shape
    assert torch.equal(out[..., 40:], qkv[..., 40:])
    for head in range(4):
        one = qkv[0, :, None, head * 10 : (head + 1) * 10].double().numpy()
        expected = turned(one, np.arange(4), made)[:, 0]
        assert np.abs(out[0, :, head * 10 : (head + 1) * 10].numpy() - expected).max() < 1e-5


def test_without_positions_the_tokens_follow_the_past() -> None:
    rotary = RotaryPositions(config())
    x = torch.zeros(2, 5, 24)
    whole = rotary(x, torch.arange(8)[None])
    assert torch.equal(rotary(x, past_length=3).cosine, whole.cosine[:, 3:])
    assert torch.equal(whole.slice(3, 8).sine, rotary(x, past_length=3).sine)


def test_there_are_no_parameters_and_no_buffers() -> None:
    assert not RotaryPositions(config()).state_dict()


@pytest.mark.parametrize("position", ["rotary", "sinusoidal"])
def test_float32_angles_are_those_of_other_programs(position: str) -> None:
    """A float32 position times a float32 frequency; sines of those angles, exactly."""
    gpt = GPT(config(position=position)).eval()
    other = with_float32_angles(gpt)
    name, parameter = next(iter(other.named_parameters()))
    assert parameter is dict(gpt.named_parameters())[name]
    changed, exact = (part.rotary or part.wpe for part in (other, gpt))
    assert isinstance(changed, Angled)
    assert isinstance(exact, Angled)
    far = torch.tensor([FAR - 3])
    table = changed.sines(far, torch.float32)
    frequency = np.array(changed.sines.frequencies).astype(np.float32)
    angle = (np.float32(FAR - 3) * frequency).astype(np.float64) + np.array(changed.sines.phases)
    assert np.abs(table[0].numpy() - np.sin(angle)).max() < TOLERANCE
    assert (exact.sines(far, torch.float32) - table).abs().max() > 1e-3


@pytest.mark.parametrize("position", ["learned", "alibi"])
def test_models_without_angles_are_the_same_with_float32_angles(position: str) -> None:
    gpt = GPT(config(position=position)).eval()
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(with_float32_angles(gpt)(ids)[0], gpt(ids)[0])
