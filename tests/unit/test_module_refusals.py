"""Modules that cannot be exported: one sentence, and nothing is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gpt_onnx.errors import CheckpointError, ExportError
from gpt_onnx.export import export_bundle

V = 61


class Bigram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(V, 8)
        self.head = nn.Linear(8, V)

    def forward(self, idx: Tensor) -> Any:
        return self.head(self.table(idx))


class Weightless(nn.Module):
    def forward(self, idx: Tensor) -> Tensor:
        return nn.functional.one_hot(idx, V).float()


class Branching(Bigram):
    def forward(self, idx: Tensor) -> Any:
        out = super().forward(idx)
        return out if bool(out.sum() > 0) else -out


class BakedIn(Bigram):
    block_size = 16

    def __init__(self) -> None:
        super().__init__()
        self.pe = nn.Parameter(torch.zeros(16, V))

    def forward(self, idx: Tensor) -> Any:
        return super().forward(idx) + self.pe


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Weightless(), "the module has no parameters; a GPT with weights is needed"),
        (Branching(), "the module could not be traced: Could not guard on data-dependent expression"),
        (BakedIn(), "the module computes 16 tokens at once and not 2"),
    ],
    ids=["no parameters", "control flow by data", "a length that is built in"],
)
def test_a_module_that_cannot_be_exported_is_one_sentence(
    tmp_path: Path, module: nn.Module, message: str
) -> None:
    with pytest.raises(ExportError) as told:
        export_bundle(module, tmp_path / "bundle", check="none")
    assert message in str(told.value)
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_a_length_that_is_built_in_can_be_frozen(tmp_path: Path, run_ort: Any) -> None:
    module = BakedIn()
    report = export_bundle(module, tmp_path / "bundle", check="none", seq_len=16)
    assert report.manifest.graph.seq_len == 16
    ids = np.arange(32).reshape(2, 16)
    found = run_ort(tmp_path / "bundle/onnx/model.onnx", {"input_ids": ids})["logits"]
    np.testing.assert_allclose(found, module(torch.from_numpy(ids)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_weights_that_are_not_finite_publish_nothing(tmp_path: Path) -> None:
    module = Bigram()
    with torch.no_grad():
        module.head.weight[2, 3] = float("inf")
    with pytest.raises(CheckpointError, match=r"head.weight has NaN or infinity in 1 of 488 places"):
        export_bundle(module, tmp_path / "bundle", check="none")
    assert list(tmp_path.iterdir()) == []
