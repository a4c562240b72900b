"""Modules that cannot be exported: one sentence, and nothing is published."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gpt_onnx.errors import CheckpointError, ExportError
from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate.foreign import ModuleReference
from gpt_onnx.export.gate.repeats import check_repeats
from gpt_onnx.export.module_source import refuse_compiled

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


class Unending(Bigram):
    def forward(self, idx: Tensor) -> Any:
        raise SystemExit(5)


class Stateless(Bigram):
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no state")


class RulingOut(Bigram):
    def forward(self, idx: Tensor) -> Any:
        return super().forward(idx).masked_fill(torch.arange(V) > 50, float("-inf"))


class Recurrent(Bigram):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)

    def forward(self, idx: Tensor) -> Any:
        return self.head(self.lstm(self.table(idx))[0])


def on_meta() -> nn.Module:
    with torch.device("meta"):
        return Bigram()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Unending(), "SystemExit: 5; its forward must take int64 ids (B, S) alone"),
        (Stateless(), "the module's own code raised RuntimeError: no state while it was looked at"),
        (on_meta(), "table.weight is on the meta device and has no values; load the weights before"),
        (
            RulingOut(),
            "the module's own logits are NaN or infinite at 10 rows from 51 to 60 of 61 of its vocabulary",
        ),
        (Recurrent(), "fixes a size that was to stay dynamic; freeze it with --seq-len N."),
        (Weightless(), "the module has no parameters; a GPT with weights is needed"),
        (Branching(), "the module could not be traced: Could not guard on data-dependent expression"),
        (Branching(), "; replace an if on values by torch.where, and a loop by a fixed number of steps."),
        (BakedIn(), "the module computes 16 tokens at once and not 2"),
    ],
    ids=[
        "leaves",
        "no state",
        "no values",
        "infinite logits",
        "recurrent",
        "no parameters",
        "control flow by data",
        "its remedy",
        "a length that is built in",
    ],
)
def test_a_module_that_cannot_be_exported_is_one_sentence(
    tmp_path: Path, module: nn.Module, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ExportError) as told:
        export_bundle(module, tmp_path / "bundle", check="none")
    assert capfd.readouterr() == ("", "")
    assert message in str(told.value)
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_a_length_that_is_built_in_can_be_frozen(tmp_path: Path, run_ort: Any) -> None:
    module = BakedIn()
    report = export_bundle(module, tmp_path / "bundle", check="none", seq_len=16, batch_size="dynamic")
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


def test_what_is_compiled_or_quantized_is_refused_by_name() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50)))
    with pytest.raises(ExportError, match=r"is compiled by torch.jit; give the eager module"):
        refuse_compiled(nn.Sequential(scripted))
    from torch.ao.nn.quantized.dynamic import Linear

    part = Linear.__new__(Linear)
    nn.Module.__init__(part)
    with pytest.raises(ExportError, match=r"Linear 0 is quantized; give the module in floating point"):
        refuse_compiled(nn.Sequential(part))


def test_what_a_module_prints_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Chatty(Bigram):
        def forward(self, idx: Tensor) -> Any:
            print("chatter")
            return super().forward(idx)

    export_bundle(Chatty(), tmp_path / "bundle", check="quick")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert set(printed.err.split()) == {"chatter"}


class Dropping(Bigram):
    def forward(self, idx: Tensor) -> Any:
        return self.head(nn.functional.dropout(self.table(idx), 0.1, training=True))


class Drawing(Bigram):
    def forward(self, idx: Tensor) -> Any:
        return super().forward(idx) * (1 + 0.1 * np.random.rand())


class Clocked(Bigram):
    def forward(self, idx: Tensor) -> Any:
        return super().forward(idx) + 0.01 * float(np.sin(time.perf_counter_ns()))


class Alternating(Bigram):
    calls = 0

    def forward(self, idx: Tensor) -> Any:
        self.calls += 1
        return super().forward(idx) * (1 + 0.01 * (self.calls % 2))


class Remembering(Bigram):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1, 1, 8))

    def forward(self, idx: Tensor) -> Any:
        x = self.table(idx)
        self.seen = self.seen + x.mean((0, 1), keepdim=True)
        return self.head(x + self.seen)


@pytest.mark.parametrize("kind", [Dropping, Drawing, Clocked, Alternating, Remembering])
@pytest.mark.parametrize("check", ["none", "quick"])
def test_a_module_that_computes_something_else_each_time_is_refused(
    tmp_path: Path, kind: type[nn.Module], check: str
) -> None:
    """Else what differs by itself would count as the cost of float32, and hide what the graph does wrong."""
    with pytest.raises(
        ExportError, match=r"other logits each time it runs on the same ids, by up to .*dropout"
    ):
        export_bundle(kind(), tmp_path / "bundle", check=check)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("kind", [Dropping, Alternating])
def test_a_reference_that_does_not_repeat_itself_compares_nothing(kind: type[nn.Module]) -> None:
    reference = ModuleReference(kind())
    with pytest.raises(ExportError, match="other logits each time it runs on the same ids"):
        reference.compute((1, 2, 3, 4, 5))


def test_numbers_that_are_none_repeat_themselves() -> None:
    nan = torch.tensor([[1.0, float("nan"), float("inf")]])
    check_repeats(nan, nan.clone())
    with pytest.raises(ExportError, match="by up to inf of the largest"):
        check_repeats(nan, torch.tensor([[1.0, 2.0, float("inf")]]))


def test_a_module_that_is_not_causal_says_so(tmp_path: Path) -> None:
    class Averaging(Bigram):
        def forward(self, idx: Tensor) -> Any:
            x = self.table(idx)
            return self.head(x + x.mean(1, keepdim=True))

    choices: list[dict[str, Any]] = [{}, {"seq_len": 8}]
    for options in choices:
        report = export_bundle(Averaging(), tmp_path / "bundle", check="none", overwrite=True, **options)
        text = (tmp_path / "bundle/README.md").read_text()
        assert report.notes[0].startswith("The module is not causal")
        assert report.notes[0] in text
        assert "| other clients may pad | none |" in text
    causal = export_bundle(Bigram(), tmp_path / "bundle", check="none", overwrite=True)
    assert causal.notes == ()
    assert "| other clients may pad | right |" in (tmp_path / "bundle/README.md").read_text()
