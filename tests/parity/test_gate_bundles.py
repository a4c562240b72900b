"""The gate on whole bundles: modules of anybody's, the original's own numbers, evidence that travels."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gpt_onnx.bundle import open_bundle
from gpt_onnx.errors import InputError, ParityError
from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate import GptReference, ModuleReference, gate_against, run_gate
from gpt_onnx.model import GPT
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime.verify import verify_bundle

GptMaker = Callable[..., GPT]
Exporter = Callable[..., Path]
VOCAB, CONTEXT, WIDTH, HEADS = 61, 40, 32, 4


class Head(nn.Module):
    """One head of a from-scratch GPT: three projections and a buffer of ones below the diagonal."""

    tril: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH // HEADS, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(CONTEXT, CONTEXT)))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        scores = self.query(x) @ self.key(x).transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(self.tril[:length, :length] == 0, float("-inf"))
        out: Tensor = torch.softmax(scores, dim=-1) @ self.value(x)
        return out


class Walkthrough(nn.Module):
    """A GPT as tutorials write it; ``last`` returns what nanoGPT returns without targets."""

    def __init__(self, *, last: bool = False, ahead: bool = False) -> None:
        super().__init__()
        self.block_size, self.last, self.ahead = CONTEXT, last, ahead
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.heads = nn.ModuleList(Head() for _ in range(HEADS))
        self.project, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.dropout, self.out = nn.Dropout(0.3), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids: Tensor) -> Any:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        mixed = torch.cat([head(self.norm(x)) for head in self.heads], dim=-1)
        x = x + self.dropout(self.project(mixed))
        x = x + x.mean(dim=1, keepdim=True) if self.ahead else x
        return (self.out(x[:, [-1]]), None) if self.last else {"logits": self.out(x)}


KINDS: dict[str, dict[str, bool]] = {
    "all positions": {},
    "the last position": {"last": True},
    "not causal": {"ahead": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_module_is_gated_against_itself(export_unchecked: Exporter, kind: str) -> None:
    torch.manual_seed(0)
    module = Walkthrough(**KINDS[kind])
    bundle = export_unchecked(module)
    report = run_gate(bundle, ModuleReference(module), level="quick")
    assert report.passed, report.summary()
    assert report.reference == "Walkthrough"
    padding = set() if module.last else {"padding"}
    assert {row.group for row in report.rows} == {"lengths", "ids", "greedy"} | padding
    with torch.no_grad():
        module.project.bias[3] += 1e-3
    assert not run_gate(bundle, ModuleReference(module), level="quick").passed


def write_numbers(path: Path, gpt: GPT, **changes: Any) -> Path:
    ids = torch.from_numpy(np.random.default_rng(5).integers(0, gpt.config.vocab_size, (2, 20)))
    with torch.no_grad():
        logits = gpt.eval()(ids)[0]
    save_file({"input_ids": ids, "logits": logits} | changes, path)
    return path


@pytest.fixture(scope="module")
def gpt(make_gpt: GptMaker) -> GPT:
    return make_gpt()


@pytest.fixture(scope="module")
def bundle(gpt: GPT, export_unchecked: Exporter) -> Path:
    return export_unchecked(gpt)


def test_the_originals_own_numbers_are_compared(gpt: GPT, bundle: Path, tmp_path: Path) -> None:
    numbers = write_numbers(tmp_path / "numbers.safetensors", gpt)
    report = run_gate(bundle, GptReference(gpt), level="quick", reference_file=numbers)
    assert report.passed, report.summary()
    assert report.compared_with_original
    assert report.rows[-1].group == "original"


def test_a_program_that_was_read_wrongly_is_found_out(
    gpt: GPT, bundle: Path, make_gpt: GptMaker, tmp_path: Path
) -> None:
    original = make_gpt(activation="gelu_tanh")  # what it really was; the checkpoint has the same weights
    numbers = write_numbers(tmp_path / "numbers.safetensors", original)
    report = run_gate(bundle, GptReference(gpt), level="quick", reference_file=numbers)
    assert [o.group for o in report.outcomes if not o.passed] == ["original"]


def test_nothing_is_published_where_the_originals_numbers_differ(gpt: GPT, tmp_path: Path) -> None:
    numbers = write_numbers(tmp_path / "numbers.safetensors", gpt, logits=torch.zeros(2, 20, 97))
    with pytest.raises(ParityError, match="original: 2 x 20 tokens"):
        export_bundle(gpt, tmp_path / "bundle", check="quick", reference=numbers)
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.safetensors"]


def test_a_reference_file_for_another_model_is_an_input_error(gpt: GPT, bundle: Path, tmp_path: Path) -> None:
    numbers = write_numbers(tmp_path / "numbers.safetensors", gpt, logits=torch.zeros(2, 20, 96))
    with pytest.raises(InputError, match=r"numbers\.safetensors has logits of shape \(2, 20, 96\)"):
        run_gate(bundle, GptReference(gpt), level="quick", reference_file=numbers)


def test_the_evidence_travels_and_is_the_same_every_time(gpt: GPT, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        export_bundle(gpt, folder, check="quick")
    for name in ("parity.json", "reference.safetensors", "manifest.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
    parity = json.loads((folders[0] / "parity.json").read_text())
    manifest = open_bundle(folders[0]).manifest
    assert manifest.checked
    assert parity["passed"]
    assert parity["sha256"] == {path: manifest.files[path].sha256 for path in manifest.graph.paths}
    assert str(tmp_path) not in json.dumps(parity)
    report = verify_bundle(folders[0])
    assert report.computed
    assert report.passed, report.summary()


@pytest.mark.parametrize("level", ["standard", "deep"])
def test_the_higher_levels_pass_too(gpt: GPT, bundle: Path, level: str) -> None:
    report = gate_against(bundle, gpt, level=level, provider="cpu", threads=1)
    assert report.passed, report.summary()
    assert ("variants" in {row.group for row in report.rows}) is (level == "deep")


def test_what_stands_behind_the_cache_changes_nothing(gpt: GPT, bundle: Path) -> None:
    ids = np.random.default_rng(6).integers(0, 97, 30).tolist()
    found = []
    for rubbish in (0.0, np.nan):
        decoder: Any = OnnxGPT.load(bundle, threads=1).decoder(1)
        decoder.append([ids[:10]])
        for cache in decoder._caches:
            cache[:, :, 10:] = rubbish
        found.append([decoder.append([ids[10:13]], keep="all")[0], decoder.append([ids[13:14]])[0]])
    for clean, dirty in zip(*found, strict=True):
        np.testing.assert_array_equal(clean, dirty)


def test_a_bundle_against_another_model_differs(bundle: Path, make_gpt: GptMaker) -> None:
    report = gate_against(bundle, make_gpt(seed=3), level="quick")
    assert not report.passed
    assert not report.evidence
