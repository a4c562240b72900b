"""Products summed one after another: the error is that of adding the terms one by one, however written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.export.gate.in_turn import InTurn, product_in_turn


def _rms(found: Tensor, x: Tensor, matrix: Tensor) -> float:
    truth = x.double() @ matrix.double()
    return float(((found.double() - truth) ** 2).mean().sqrt())


def _one_by_one(x: Tensor, matrix: Tensor) -> Tensor:
    """Add K terms in float32, in numpy, which rounds each sum."""
    columns, terms = x.T.numpy()[:, :, None], matrix.numpy()
    total = np.zeros((len(x), matrix.shape[1]), np.float32)
    for column, row in zip(columns, terms, strict=True):
        total = total + column * row
    return torch.from_numpy(total)


@pytest.mark.parametrize(("terms", "rows"), [(16, 3), (64, 5), (300, 2), (768, 40), (1280, 3), (5120, 2)])
def test_the_error_is_that_of_adding_term_by_term(terms: int, rows: int) -> None:
    torch.manual_seed(terms)
    x, matrix = torch.randn(rows, terms), torch.randn(terms, 500) / terms**0.5
    expected = _rms(_one_by_one(x, matrix), x, matrix)
    assert 0.75 * expected < _rms(product_in_turn(x, matrix), x, matrix) < 1.5 * expected


def test_a_long_sum_costs_more_than_that_of_a_blas() -> None:
    torch.manual_seed(0)
    x, matrix = torch.randn(2, 5120), torch.randn(5120, 500) / 5120**0.5
    assert _rms(product_in_turn(x, matrix), x, matrix) > 2 * _rms(x @ matrix, x, matrix)


def test_sums_of_integers_are_exact() -> None:
    """No bit is lost of what needs few."""
    x = torch.arange(-64, 64.0).reshape(2, 64).remainder(7)
    matrix = torch.arange(64 * 5.0).reshape(64, 5).remainder(5)
    assert torch.equal(product_in_turn(x, matrix), x @ matrix)


class Written(nn.Module):
    """A product in one way of writing it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.weight, self.bias = way, nn.Parameter(torch.randn(1280, 1280) / 36), torch.ones(1280)

    def forward(self, x: Tensor) -> Tensor:
        ways = {
            "linear": lambda: F.linear(x, self.weight, self.bias),
            "linear by name": lambda: F.linear(input=x, weight=self.weight),
            "operator": lambda: x @ self.weight,
            "view": lambda: x @ self.weight.T,
            "addmm": lambda: torch.addmm(self.bias, x[0], self.weight, alpha=2, beta=3),
            "other weight": lambda: x @ self.bias.reshape(-1, 1),
        }
        return ways[self.way]()


@pytest.mark.parametrize("way", ["linear", "linear by name", "operator", "view", "addmm", "other weight"])
def test_products_are_found_however_they_are_written(way: str) -> None:
    torch.manual_seed(1)
    module, x = Written(way), torch.randn(1, 3, 1280)
    with torch.no_grad():
        plain = module(x)
        with InTurn.of(module, {"weight": 16}):
            found = module(x)
        with InTurn.of(module, {}):
            assert torch.equal(module(x), plain)
    assert found.shape == plain.shape
    assert torch.allclose(found, plain, atol=1e-4)
    assert torch.equal(found, plain) == (way == "other weight")


def test_float64_stays_exact() -> None:
    module = Written("operator").double()
    x = torch.randn(1, 3, 1280, dtype=torch.float64)
    with torch.no_grad(), InTurn.of(module, {"weight": 16}):
        assert torch.equal(module(x), x @ module.weight)
