"""Portable graphs of every opset: valid, the same numbers on ONNX Runtime and on ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator

from gpt_onnx.export import export_bundle
from gpt_onnx.export.targets import IR_VERSIONS, TARGETS
from gpt_onnx.model import GPT
from tests.parity.test_gate_half import KINDS

EVALUATED = [
    *((opset, "gpt2") for opset in sorted(TARGETS["portable"].opsets)),
    *((opset, "llama") for opset in (17, 21)),
    (17, "alibi"),
    (19, "sinusoidal"),
]
GATED = [
    (17, "gpt2"),
    (17, "llama"),
    (19, "gpt2"),
    (20, "alibi"),
    (21, "llama"),
]
Maker = Callable[..., GPT]


def _padded(gpt: GPT, rows: list[list[int]], side: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, mask and positions of rows of unequal length, padded with another token on one side."""
    width = max(map(len, rows))
    ids, mask = np.full((len(rows), width), 5, np.int64), np.zeros((len(rows), width), np.int64)
    for row, tokens in enumerate(rows):
        at = slice(width - len(tokens), None) if side == "left" else slice(len(tokens))
        ids[row, at], mask[row, at] = tokens, 1
    return ids, mask, np.maximum(mask.cumsum(axis=1) - 1, 0)


def _feeds(gpt: GPT, ids: np.ndarray, mask: np.ndarray, positions: np.ndarray) -> dict[str, np.ndarray]:
    config = gpt.config
    empty = np.zeros((len(ids), config.n_kv_head, 0, config.head_size), np.float32)
    names = [f"past_key_values.{i}.{part}" for i in range(config.n_layer) for part in ("key", "value")]
    feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    return feeds | dict.fromkeys(names, empty)


@pytest.mark.parametrize(("opset", "kind"), EVALUATED)
def test_a_graph_is_valid_and_right_for_both_padding_sides(
    make_gpt: Maker, export_unchecked: Callable[..., Path], opset: int, kind: str
) -> None:
    gpt = make_gpt(**KINDS[kind])
    path = export_unchecked(gpt, target="portable", opset=opset) / "onnx/model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path))
    assert (model.ir_version, [entry.version for entry in model.opset_import]) == (
        IR_VERSIONS[opset],
        [opset],
    )
    evaluator, rows = ReferenceEvaluator(model), [[3, 1, 4, 1, 5, 9], [2, 7]]
    for side in ("left", "right"):
        ids, mask, positions = _padded(gpt, rows, side)
        outputs: Any = evaluator.run(None, _feeds(gpt, ids, mask, positions))
        found = outputs[0]
        for row, tokens in enumerate(rows):
            with torch.no_grad():
                expected = gpt(torch.tensor([tokens]))[0][0].numpy()
            np.testing.assert_allclose(found[row][mask[row] == 1], expected, atol=2e-4)


@pytest.mark.parametrize(("opset", "kind"), GATED)
def test_the_gate_accepts_it(make_gpt: Maker, tmp_path: Path, opset: int, kind: str) -> None:
    report = export_bundle(
        make_gpt(**KINDS[kind]), tmp_path / "b", target="portable", opset=opset, check="quick"
    )
    assert report.gate is not None
    assert report.gate.passed
    assert (report.manifest.graph.opset, report.manifest.graph.ir_version) == (opset, IR_VERSIONS[opset])


def test_a_module_of_ones_own_is_lowered_as_well(export_unchecked: Callable[..., Path]) -> None:
    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = torch.nn.Embedding(50, 16)
            self.mlp = torch.nn.Linear(16, 16)

        def forward(self, ids: Any) -> Any:
            x = self.wte(ids)
            first, second = torch.nn.functional.gelu(self.mlp(x)).chunk(2, dim=-1)
            return torch.cat((second, first), dim=-1).mean(dim=-1, keepdim=True) + x @ self.wte.weight.T

    module = Mine().eval()
    path = export_unchecked(module, target="portable", opset=17) / "onnx/model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    ids = np.array([[4, 8, 15]], np.int64)
    outputs: Any = ReferenceEvaluator(onnx.load(str(path))).run(None, {"input_ids": ids})
    (found,) = outputs
    with torch.no_grad():
        np.testing.assert_allclose(found, module(torch.from_numpy(ids)).numpy(), atol=1e-5)
