"""The trace: promised names, quiet, and one sentence where it fails."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gpt_onnx.errors import ExportError, InputError
from gpt_onnx.export.graphs import BATCH, PAST, SEQUENCE, TOTAL, Graph
from gpt_onnx.export.trace import trace

SIZES = {BATCH: 61, SEQUENCE: 97, PAST: 103, TOTAL: 200}


class Bigram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7)

    def forward(self, input_ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.table(input_ids))
        return out


def _graph(module: nn.Module, **changes: Any) -> Graph:
    values: dict[str, Any] = {
        "role": "model",
        "module": module,
        "inputs": {"input_ids": (BATCH, SEQUENCE)},
        "outputs": {"logits": (BATCH, SEQUENCE, 7)},
        "sequence_limit": None,
    }
    return Graph(**(values | changes))


def test_names_are_those_promised_and_dims_symbolic() -> None:
    model = trace(_graph(Bigram()), SIZES)
    assert [(value.name, str(value.shape)) for value in model.graph.inputs] == [
        ("input_ids", f"[{BATCH},{SEQUENCE}]")
    ]
    assert [(value.name, str(value.shape)) for value in model.graph.outputs] == [
        ("logits", f"[{BATCH},{SEQUENCE},7]")
    ]
    assert {"table.weight", "head.weight", "head.bias"} <= set(model.graph.initializers)


def test_frozen_dims_stay_numbers() -> None:
    model = trace(_graph(Bigram(), inputs={"input_ids": (1, 6)}, outputs={"logits": (1, 6, 7)}), SIZES)
    assert str(model.graph.inputs[0].shape) == "[1,6]"


def test_nothing_is_printed_or_warned_and_loggers_keep_their_level(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace(_graph(Bigram()), SIZES)
    assert not caught
    assert logger.level == level
    assert capfd.readouterr() == ("", "")


class Branching(Bigram):
    """Control flow that depends on data cannot be traced."""

    def forward(self, input_ids: Tensor) -> Tensor:
        out = super().forward(input_ids)
        return out if bool(out.sum() > 0) else -out


class Counting(Bigram):
    """A length brought into a Python number is fixed."""

    def forward(self, input_ids: Tensor) -> Tensor:
        return super().forward(input_ids)[:, : len(range(input_ids.shape[1] // 97 * 97))]


class Refusing(Bigram):
    def forward(self, input_ids: Tensor) -> Tensor:
        raise InputError("this module has had enough.")


def test_control_flow_that_depends_on_data_is_one_sentence() -> None:
    with pytest.raises(ExportError) as told:
        trace(_graph(Branching()), SIZES)
    text = str(told.value)
    assert text.startswith("the module could not be traced: ")
    assert "\n" not in text
    assert "data-dependent" in text.lower()
    assert len(text) < 400


def test_an_error_of_our_own_is_passed_on() -> None:
    with pytest.raises((InputError, ExportError), match="has had enough"):
        trace(_graph(Refusing()), SIZES)


def test_another_number_of_outputs_is_told() -> None:
    with pytest.raises(ExportError, match=r"the traced graph has the outputs .*; \['logits', 'more'\] were"):
        trace(_graph(Bigram(), outputs={"logits": (BATCH, SEQUENCE, 7), "more": (BATCH,)}), SIZES)


def test_the_sinusoidal_encoding_exports_by_itself_with_any_length(tmp_path: Any, run_ort: Any) -> None:
    """As anybody would export it, without this project's passes: no scatter, and no length in the graph."""
    import numpy as np

    from gpt_onnx.model import SinusoidalPositionalEncoding

    path = tmp_path / "encoding.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            SinusoidalPositionalEncoding(8),
            (torch.zeros(2, 50, 8),),
            dynamic_shapes={"x": {1: torch.export.Dim("length", min=1)}},
            input_names=["x"],
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(str(path))
    ops = Counter(node.op_type for node in program.model.graph)
    assert not {"ScatterND", "ScatterElements", "Scatter"} & set(ops)
    for length in (1, 3, 50, 1000, 2**20 + 1):
        found = next(iter(run_ort(path, {"x": np.zeros((2, length, 8), np.float32)}).values()))
        angle = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, 8, 2) / 8)
        wanted = np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(length, 8)
        assert found.shape == (length, 8)
        assert np.abs(found - wanted).max() < 2e-6
