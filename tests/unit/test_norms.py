"""RMSNorm: its equation, its dtype, and that ONNX Runtime makes one operator of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from gpt_onnx.config import NORMS as KNOWN
from gpt_onnx.model.norms import NORMS, RMSNorm


@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_rmsnorm_follows_its_equation(eps: float) -> None:
    module = RMSNorm(16, eps)
    torch.nn.init.normal_(module.weight)
    x = 0.1 * torch.randn(3, 5, 16)
    values, weight = x.double().numpy(), module.weight.detach().double().numpy()
    expected = values / np.sqrt((values**2).mean(-1, keepdims=True) + eps) * weight
    assert np.abs(module(x).detach().numpy() - expected).max() < 1e-6
    assert np.abs(module.double()(x.double()).detach().numpy() - expected).max() < 1e-13


def test_rmsnorm_is_that_of_llama() -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    theirs = LlamaRMSNorm(16, eps=1e-5)
    ours = RMSNorm(16, 1e-5)
    torch.nn.init.normal_(ours.weight)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(4, 16)
    torch.testing.assert_close(ours(x), theirs(x), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rmsnorm_computes_in_the_dtype_of_its_input(dtype: torch.dtype) -> None:
    assert RMSNorm(8, 1e-5).to(dtype)(torch.ones(1, 8, dtype=dtype)).dtype == dtype


def test_every_norm_of_the_configuration_exists() -> None:
    assert set(NORMS) == set(KNOWN)


def test_onnx_runtime_makes_one_operator_of_each_rmsnorm(exported: Any, tmp_path: Path) -> None:
    report = exported({"position": "rotary", "norm": "rmsnorm"})
    plain = onnx.load(str(report.path / "onnx/model.onnx"), load_external_data=False)
    fused = Counter(node.op_type for node in plain.graph.node if "Norm" in node.op_type)
    assert fused == {"SkipSimplifiedLayerNormalization": 2 * 2}  # all but the first follow a sum
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    path = str(report.path / "onnx/model.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    found = onnx.load(str(tmp_path / "optimised.onnx"), load_external_data=False)
    operators = Counter(node.op_type for node in found.graph.node)
    assert operators["SimplifiedLayerNormalization"] == 1
    assert operators["SkipSimplifiedLayerNormalization"] == 2 * 2
    assert not operators["ReduceMean"]
