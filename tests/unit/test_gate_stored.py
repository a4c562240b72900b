"""reference.safetensors: at most 1 MB, the same bytes every time, right numbers at the positions it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from gpt_onnx.config import GPTConfig
from gpt_onnx.export.gate.cases import Facts
from gpt_onnx.export.gate.oracle import Oracle
from gpt_onnx.export.gate.ours import GptReference
from gpt_onnx.export.gate.report import GateReport
from gpt_onnx.export.gate.stored import MAX_BYTES, reference_arrays, write_reference
from gpt_onnx.model import GPT

TEXTS = [[3, 1, 4, 1, 5, 9, 2, 6]]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(vocab_size: int, position: str = "sinusoidal") -> tuple[GPT, Facts]:
    torch.manual_seed(0)
    gpt = GPT(
        GPTConfig(vocab_size=vocab_size, context_length=48, n_embd=16, n_layer=2, n_head=2, position=position)
    )
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return gpt, Facts(
        vocab_size=vocab_size,
        layout="dynamic",
        context_length=48,
        limit=gpt.config.position_limit,
        position_limit=gpt.config.position_limit,
        only_length=None,
        batch_size=None,
    )


def written(folder: Path, gpt: GPT, facts: Facts) -> bytes:
    report = GateReport(
        level="quick",
        provider="cpu",
        reference="GPT",
        reference_dtype="float64",
        compared_with_original=False,
        versions={},
        hashes={},
        outcomes=(),
        evidence=reference_arrays(Oracle(GptReference(gpt)), facts, TEXTS),
    )
    return write_reference(folder, report).read_bytes()


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
@pytest.mark.parametrize("vocab_size", [97, 20_000])
def test_the_file_holds_float64_logits_of_its_positions(
    tmp_path: Path, vocab_size: int, position: str
) -> None:
    gpt, facts = make(vocab_size, position)
    content = written(tmp_path, gpt, facts)
    assert len(content) <= MAX_BYTES
    arrays, double = load(content), make(vocab_size, position)[0].double().eval()
    lengths = []
    for k in range(sum(name.endswith(".input_ids") for name in arrays)):
        ids, positions = arrays[f"case.{k}.input_ids"], arrays[f"case.{k}.positions"]
        with torch.no_grad():
            expected = double(torch.from_numpy(ids)[None])[0][0].numpy()[positions]
        vocab = arrays.get(f"case.{k}.vocab_ids", np.arange(vocab_size))
        np.testing.assert_allclose(arrays[f"case.{k}.logits"], expected[:, vocab], rtol=1e-9, atol=1e-12)
        assert 0 < arrays[f"case.{k}.tolerance"][0] < 1e-4 * np.abs(expected).max()
        assert set(expected.argmax(axis=1)) <= set(vocab.tolist())
        assert np.unique(vocab).size == vocab.size
        lengths.append(ids.size)
    assert max(lengths) == (48 if position == "learned" else 96)
    assert min(lengths) == 1


def test_greedy_tokens_come_with_their_margins(tmp_path: Path) -> None:
    gpt, facts = make(97)
    arrays, double = load(written(tmp_path, gpt, facts)), make(97)[0].double().eval()
    ids = arrays["greedy.prompt"].tolist()
    assert ids[:8] == TEXTS[0]
    assert arrays["greedy.tokens"].size == 32
    for token, margin in zip(arrays["greedy.tokens"], arrays["greedy.margins"], strict=True):
        with torch.no_grad():
            logits = np.sort(double(torch.tensor([ids]))[0][0, -1].numpy())
        assert margin == pytest.approx(logits[-1] - logits[-2], rel=1e-6)
        ids.append(int(token))


def test_learned_positions_end_the_greedy_tokens(tmp_path: Path) -> None:
    gpt, facts = make(97, "learned")
    short = replace(facts, limit=20)
    arrays = reference_arrays(Oracle(GptReference(gpt)), short, TEXTS)
    assert arrays["greedy.prompt"].size + arrays["greedy.tokens"].size - 1 <= 20


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    assert written(tmp_path, *make(97)) == written(tmp_path / "again", *make(97))
