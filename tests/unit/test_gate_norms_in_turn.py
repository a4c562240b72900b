"""Norms whose sums are taken one after another: the same norms, at the cost of ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.export.gate.norms_in_turn import NormsInTurn

EPS = 1e-5


def _truth(x: Tensor) -> Tensor:
    wide = x.double()
    mean, variance = wide.mean(-1, keepdim=True), wide.var(-1, keepdim=True, unbiased=False)
    return (wide - mean) / torch.sqrt(variance + EPS)


def _rms(found: Tensor, expected: Tensor) -> float:
    return float(((found.double() - expected) ** 2).mean().sqrt())


def _of_onnxruntime(x: Tensor) -> Tensor:
    """Compute SkipLayerNormalization of x and zeros, (1, M, W)."""
    width = x.shape[-1]
    sizes: dict[str, list[int | str | None]] = {
        "x": [1, "M", width],
        "s": [1, "M", width],
        "g": [width],
        "b": [width],
    }
    inputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size) for name, size in sizes.items()
    ]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = helper.make_node(
        "SkipLayerNormalization", list("xsgb"), ["y"], domain="com.microsoft", epsilon=EPS
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "norm", inputs, [output])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    array = x[None].numpy()
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    found = session.run(None, {"x": array, "s": np.zeros_like(array), "g": ones, "b": zeros})[0]
    return torch.from_numpy(found[0])


@pytest.mark.parametrize("mean", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("width", [256, 1280])
def test_the_error_is_about_that_of_onnxruntime(width: int, mean: float) -> None:
    """No less than half of it, so that a right graph stays within four, and no more than twice."""
    torch.manual_seed(width)
    x = mean + torch.randn(200, width)
    with NormsInTurn():
        found = F.layer_norm(x, (width,), eps=EPS)
    expected = _truth(x)
    assert 0.5 < _rms(found, expected) / _rms(_of_onnxruntime(x), expected) < 2


def test_a_module_has_its_norm_with_weight_and_bias() -> None:
    torch.manual_seed(0)
    norm, x = nn.LayerNorm(40, eps=EPS), torch.randn(2, 3, 40)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(40))
        norm.bias.copy_(torch.randn(40))
        plain = norm(x)
        with NormsInTurn():
            found = norm(x)
    assert torch.allclose(found, plain, atol=1e-5)
    assert torch.allclose(found.double(), _truth(x) * norm.weight + norm.bias, atol=1e-5)


def test_several_dims_are_one_row() -> None:
    x = torch.randn(5, 4, 6)
    with NormsInTurn():
        found = F.layer_norm(x, (4, 6))
    assert torch.allclose(found, F.layer_norm(x, (4, 6)), atol=1e-5)


def test_an_rms_norm_is_one() -> None:
    x, weight = torch.randn(3, 40), torch.randn(40)
    with NormsInTurn():
        found = F.rms_norm(x, (40,), weight, 1e-6)
    assert torch.allclose(found, F.rms_norm(x, (40,), weight, 1e-6), atol=1e-5)


def test_a_row_of_equal_numbers_is_no_root_of_a_negative_number() -> None:
    with NormsInTurn():
        assert torch.isfinite(F.layer_norm(torch.full((2, 1000), 1e3), (1000,))).all()


def test_float64_is_left_alone() -> None:
    x = torch.randn(3, 40, dtype=torch.float64)
    with NormsInTurn():
        assert torch.equal(F.layer_norm(x, (40,)), nn.LayerNorm(40, dtype=torch.float64)(x))
