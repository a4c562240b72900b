"""Positions: the sinusoidal formula against float64 NumPy at any length; the learned table."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

from gpt_onnx.errors import ConfigError, InputError
from gpt_onnx.model import LearnedPositionalEmbedding, SinusoidalPositionalEncoding
from gpt_onnx.model.positions import divisors

TOLERANCE = 2e-6
FAR = 2**20


class WithoutFloat64(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A device that has no float64, such as MPS: any operation that takes or gives one raises."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("dtype") == torch.float64 or torch.float64 in args:
            raise TypeError("this device has no float64")
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            raise TypeError("this device has no float64")
        return result


def formula(positions: NDArray[np.int64] | list[int], n_embd: int) -> NDArray[np.float64]:
    """PE(pos, 2i) = sin(pos / 10000^(2i / n_embd)), PE(pos, 2i + 1) = cos of the same angle."""
    column = np.arange(n_embd)
    angle = np.asarray(positions, np.float64)[..., None] / np.power(10000.0, (column - column % 2) / n_embd)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


def encode(positions: list[int], n_embd: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.zeros(1, len(positions), n_embd, dtype=dtype)
    encoded: torch.Tensor = SinusoidalPositionalEncoding(n_embd)(x, torch.tensor([positions]))
    return encoded[0]


def error(encoded: torch.Tensor, expected: NDArray[np.float64]) -> float:
    values = encoded.float() if encoded.dtype in (torch.float16, torch.bfloat16) else encoded
    return float(np.abs(values.numpy().astype(np.float64) - expected).max())


@pytest.fixture(params=[False, True], ids=["float64", "no float64"])
def any_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the test on a device with float64 and on one without."""
    if not request.param:
        yield
        return
    with WithoutFloat64():
        yield


def test_the_device_without_float64_has_none() -> None:
    with WithoutFloat64():
        torch.zeros(1)
        with pytest.raises(TypeError, match="no float64"):
            torch.zeros(1, dtype=torch.float64)
        with pytest.raises(TypeError, match="no float64"):
            torch.zeros(1).to(torch.float64)


@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize("n_embd", [2, 6, 64, 512])
def test_right_at_positions_up_to_2_to_the_20(n_embd: int) -> None:
    rng = np.random.default_rng(0)
    ends = [0, 1, 2, 1023, 1024, 1025, 4095, 65535, 65536, FAR - 1, FAR]
    positions = ends + rng.integers(0, FAR, 500).tolist()
    assert error(encode(positions, n_embd), formula(positions, n_embd)) < TOLERANCE


@pytest.mark.usefixtures("any_device")
def test_a_length_gives_positions_0_onwards_in_two_dimensions() -> None:
    encoded = SinusoidalPositionalEncoding(32)(torch.zeros(3, 5000, 32))
    assert encoded.shape == (5000, 32)
    assert error(encoded, formula(list(range(5000)), 32)) < TOLERANCE


@pytest.mark.usefixtures("any_device")
def test_explicit_positions_give_three_dimensions() -> None:
    position_ids = torch.tensor([[0, 1, 2], [7, 7, 0]])
    encoded = SinusoidalPositionalEncoding(16)(torch.zeros(2, 3, 16), position_ids)
    assert encoded.shape == (2, 3, 16)
    assert error(encoded, formula(position_ids.numpy(), 16)) < TOLERANCE


@pytest.mark.usefixtures("any_device")
def test_row_0_is_sin_0_and_cos_0() -> None:
    assert encode([0], 8)[0].numpy() == pytest.approx([0.0, 1.0] * 4, abs=1e-7)


def test_no_two_of_the_first_4096_rows_are_equal() -> None:
    rows = SinusoidalPositionalEncoding(64)(torch.zeros(1, 4096, 64))
    assert len(torch.unique(rows, dim=0)) == 4096


@settings(deadline=None)
@given(position=st.integers(0, FAR), offset=st.integers(0, FAR))
def test_a_later_row_is_the_rotation_of_an_earlier_one(position: int, offset: int) -> None:
    """PE(pos + k) is PE(pos) turned by k / divisor in each plane of a sine and its cosine."""
    n_embd = 16
    angle = offset / np.power(10000.0, np.arange(0, n_embd, 2) / n_embd)
    row, later = (encode([at], n_embd)[0].numpy().astype(np.float64) for at in (position, position + offset))
    sine = row[0::2] * np.cos(angle) + row[1::2] * np.sin(angle)
    cosine = row[1::2] * np.cos(angle) - row[0::2] * np.sin(angle)
    assert np.abs(later[0::2] - sine).max() < 3 * TOLERANCE
    assert np.abs(later[1::2] - cosine).max() < 3 * TOLERANCE


def test_divisors_are_those_of_the_paper() -> None:
    assert divisors(8) == pytest.approx([1, 10, 100, 1000], rel=1e-15)
    assert len(divisors(512)) == 256
    assert max(divisors(512)) == pytest.approx(9646.6, abs=0.05)


@pytest.mark.parametrize("n_embd", [-2, 0, 1, 7, 513])
def test_an_odd_width_is_refused(n_embd: int) -> None:
    with pytest.raises(
        ConfigError, match=f"n_embd is {n_embd}; sinusoidal positions pair sines with cosines"
    ):
        SinusoidalPositionalEncoding(n_embd)


def test_there_are_no_parameters_and_no_buffers() -> None:
    module = SinusoidalPositionalEncoding(64)
    assert not list(module.parameters())
    assert not list(module.buffers())
    assert not module.state_dict()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 5e-4), (torch.bfloat16, 4e-3), (torch.float32, TOLERANCE)]
)
def test_the_dtype_of_the_input_is_followed_and_only_rounds_the_result(
    dtype: torch.dtype, tolerance: float
) -> None:
    positions = [0, 1, 2047, 2049, 65537, FAR]
    encoded = encode(positions, 64, dtype)
    assert encoded.dtype == dtype
    assert error(encoded, formula(positions, 64)) < tolerance


def test_float64_is_encoded_in_float64() -> None:
    positions = [0, 1, 12345, FAR]
    encoded = encode(positions, 64, torch.float64)
    assert encoded.dtype == torch.float64
    assert error(encoded, formula(positions, 64)) < 1e-9


def test_the_device_of_the_input_is_followed() -> None:
    encoded = SinusoidalPositionalEncoding(8)(torch.zeros(1, 3, 8, device="meta"))
    assert (encoded.device.type, encoded.shape) == ("meta", (3, 8))
    learned = LearnedPositionalEmbedding(5, 8).to("meta")
    assert learned(torch.zeros(1, 3, 8, device="meta")).device.type == "meta"


def test_casting_the_module_changes_nothing() -> None:
    x = torch.zeros(1, 100, 32)
    module = SinusoidalPositionalEncoding(32)
    before = module(x)
    assert torch.equal(module.half()(x), before)


def test_no_gradient_flows_into_the_input() -> None:
    x = torch.zeros(1, 4, 8, requires_grad=True)
    assert not SinusoidalPositionalEncoding(8)(x).requires_grad


def test_the_learned_table_gives_its_rows() -> None:
    module = LearnedPositionalEmbedding(10, 6)
    x = torch.zeros(2, 4, 6)
    assert torch.equal(module(x), module.weight[:4])
    position_ids = torch.tensor([[3, 9, 0, 0], [1, 2, 3, 4]])
    assert torch.equal(module(x, position_ids), module.weight[position_ids])


def test_the_learned_table_is_one_parameter() -> None:
    module = LearnedPositionalEmbedding(10, 6)
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == {"weight": (10, 6)}


def test_a_sequence_longer_than_the_table_is_refused_by_its_length() -> None:
    module = LearnedPositionalEmbedding(10, 6)
    assert module(torch.zeros(1, 10, 6)).shape == (10, 6)
    with pytest.raises(InputError, match="the sequence has 11 tokens and the maximum context window is 10"):
        module(torch.zeros(1, 11, 6))


@pytest.mark.parametrize("position", [-1, 10, 2**40])
def test_a_position_outside_the_table_is_refused(position: int) -> None:
    with pytest.raises(
        InputError, match=f"position {position} is outside the table of learned positions, 0 to 9"
    ):
        LearnedPositionalEmbedding(10, 6)(torch.zeros(1, 1, 6), torch.tensor([[position]]))
