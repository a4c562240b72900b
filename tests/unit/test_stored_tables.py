"""Tables that follow a formula are known by their values, and others are not taken for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpt_onnx.checkpoint.stored_tables import check_masks, is_causal, sinusoidal_style_of, without_ones
from gpt_onnx.errors import CheckpointError

LENGTH, WIDTH = 700, 12


def table(order: str = "interleaved", base: float = 10000.0, dtype: type = np.float32) -> NDArray[Any]:
    """The formula element by element, its angles made in ``dtype`` as other programs make them."""
    rows: NDArray[Any] = np.zeros((LENGTH, WIDTH), dtype)
    for pair in range(WIDTH // 2):
        frequency = dtype(np.exp(dtype(-np.log(base) * 2 * pair / WIDTH)))
        angle = np.arange(LENGTH).astype(dtype) * frequency
        columns = (2 * pair, 2 * pair + 1) if order == "interleaved" else (pair, WIDTH // 2 + pair)
        rows[:, columns[0]], rows[:, columns[1]] = np.sin(angle), np.cos(angle)
    return rows


@pytest.mark.parametrize("style", ["interleaved", "concatenated"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sinusoidal_tables_are_known(style: str, dtype: type) -> None:
    assert sinusoidal_style_of(table(style, dtype=dtype)) == style


@pytest.mark.parametrize(
    "other",
    [
        table() * np.float32(1.001),
        table(base=10010.0),
        table()[1:],
        table()[:, ::-1],
        table()[:, :-1],
        table()[:1],
        np.random.default_rng(0).standard_normal((LENGTH, WIDTH)),
        np.zeros((LENGTH, WIDTH)),
        np.full((LENGTH, WIDTH), np.nan),
    ],
    ids=[
        "scaled",
        "another base",
        "from position 1",
        "reversed",
        "odd",
        "one row",
        "trained",
        "zeros",
        "NaN",
    ],
)
def test_other_tables_are_not(other: NDArray[Any]) -> None:
    assert sinusoidal_style_of(other) is None


@pytest.mark.parametrize("shape", [(1, LENGTH, WIDTH), (LENGTH, 1, WIDTH)])
def test_dims_of_one_are_taken_off(shape: tuple[int, ...]) -> None:
    assert sinusoidal_style_of(without_ones(table().reshape(shape))) == "interleaved"


SEEN = np.tri(6)
FORBIDDEN = np.where(SEEN == 1, 0.0, -np.inf)


@pytest.mark.parametrize("mask", [SEEN, SEEN.astype(bool), 1 - SEEN, FORBIDDEN, SEEN[None, None]])
def test_causal_masks_are_known(mask: NDArray[Any]) -> None:
    assert is_causal(mask)


@pytest.mark.parametrize(
    "mask", [np.ones((6, 6)), SEEN.T, SEEN - np.tri(6, k=-3), SEEN[:4], np.ones(6), np.ones((0, 0))]
)
def test_other_masks_are_not_causal(mask: NDArray[Any]) -> None:
    assert not is_causal(mask)


@pytest.mark.parametrize("odd", [0, 1])
def test_the_mask_of_every_layer_is_looked_at(odd: int) -> None:
    causal = np.tri(9)
    masks = {f"h.{layer}.mask": causal - np.tri(9, k=-5) * (layer == odd) for layer in range(2)}
    with pytest.raises(CheckpointError, match=rf"h\.{odd}\.mask is a mask that is not causal"):
        check_masks(Path("gpt.pt"), masks, masks, masks.__getitem__)
