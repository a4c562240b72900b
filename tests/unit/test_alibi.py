"""ALiBi: the slopes of the paper, and a bias that knows distances alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.model.alibi import Alibi, slopes, token_places


def authors_slopes(n: int) -> list[float]:
    """The authors' own program (ofirpress/attention_with_linear_biases), as published."""

    def of_a_power(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n).is_integer():
        return of_a_power(n)
    closest = 2 ** math.floor(math.log2(n))
    return of_a_power(closest) + authors_slopes(2 * closest)[0::2][: n - closest]


def test_eight_heads_have_the_slopes_of_the_paper() -> None:
    assert slopes(8) == tuple(2.0**-exponent for exponent in range(1, 9))


@given(n_head=st.integers(1, 200))
def test_any_number_of_heads_has_the_slopes_of_the_authors_program(n_head: int) -> None:
    assert slopes(n_head) == pytest.approx(authors_slopes(n_head), rel=1e-12)


def test_twelve_heads_take_eight_slopes_and_four_between_them() -> None:
    expected = [2.0**-exponent for exponent in (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5)]
    assert slopes(12) == pytest.approx(expected, rel=1e-15)


def test_the_bias_is_the_slope_times_the_distance() -> None:
    places = torch.arange(5).unsqueeze(0)
    bias = Alibi(4)(places[:, 2:], places, torch.float64)
    assert bias.shape == (1, 4, 3, 5)
    for head, slope in enumerate((1 / 4, 1 / 16, 1 / 64, 1 / 256)):
        for query in range(3):
            for key in range(5):
                assert bias[0, head, query, key] == slope * (key - (query + 2))


def test_without_a_mask_tokens_stand_one_behind_another() -> None:
    assert token_places(torch.zeros(2, 3), None, 4).tolist() == [list(range(7))]


@pytest.mark.parametrize("mask", [[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 0, 1], [0, 1, 1, 0, 1]])
def test_padding_anywhere_does_not_lengthen_a_distance(mask: list[int]) -> None:
    places = token_places(torch.zeros(1, 5), torch.tensor([mask]), 0)
    bias = Alibi(2)(places, places, torch.float64)
    real = [index for index, one in enumerate(mask) if one]
    bare = torch.arange(3).unsqueeze(0)
    assert torch.equal(bias[:, :, real][..., real], Alibi(2)(bare, bare, torch.float64))
