"""What the gate takes for true: our GPT in float64, and modules of anybody's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ExportError
from gpt_onnx.export.gate.foreign import ModuleReference, logits_in
from gpt_onnx.export.gate.oracle import Oracle
from gpt_onnx.export.gate.ours import GptReference
from gpt_onnx.export.gate.reference import Refused
from gpt_onnx.export.gate.truth import cache_ratio
from gpt_onnx.model import GPT

IDS = tuple(int(token) for token in np.random.default_rng(0).integers(0, 31, 20))


@pytest.fixture(scope="module")
def gpt() -> GPT:
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(vocab_size=31, context_length=16, n_embd=16, n_layer=2, n_head=2, dropout=0.5))
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return gpt


def float64_logits(gpt: GPT, ids: tuple[int, ...]) -> np.ndarray:
    import copy

    with torch.no_grad():
        logits: np.ndarray = copy.deepcopy(gpt).double().eval()(torch.tensor([ids]))[0][0].numpy()
    return logits


def test_the_truth_is_the_float64_forward(gpt: GPT) -> None:
    truth = GptReference(gpt).compute(IDS)
    np.testing.assert_allclose(truth.logits(), float64_logits(gpt, IDS), rtol=1e-12, atol=1e-14)
    assert truth.logits().dtype == np.float64


def test_keys_and_values_are_those_of_the_forward(gpt: GPT) -> None:
    truth = GptReference(gpt).compute(IDS)
    with torch.no_grad():
        presents = gpt.eval()(torch.tensor([IDS]))[1]
    found = [(key.numpy(), value.numpy()) for key, value in presents]
    ratio = cache_ratio([truth], found)
    assert 0 < ratio.peak <= 1.0  # eager float32 is what the unit is made of
    swapped = [(value, key) for key, value in found]
    assert not cache_ratio([truth], swapped).passed
    with pytest.raises(ValueError, match="argument 2 is"):
        cache_ratio([truth], found[:1])


def test_the_unit_is_the_error_of_float32(gpt: GPT) -> None:
    with torch.no_grad():
        f32 = gpt.eval()(torch.tensor([IDS]))[0][0].numpy()
    truth = GptReference(gpt).compute(IDS)
    error = np.abs(f32 - truth.logits())
    assert truth.unit().peak == pytest.approx(max(error.max(), 8 * 2**-24 * np.abs(truth.logits()).max()))
    assert truth.ratio(f32).peak <= 1.0


def test_a_prefix_of_the_truth_is_the_truth_of_the_prefix(gpt: GPT) -> None:
    oracle = Oracle(GptReference(gpt))
    oracle.hold(IDS)
    held, fresh = oracle.truth(IDS[:7]), GptReference(gpt).compute(IDS[:7])
    np.testing.assert_allclose(held.logits(), fresh.logits(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(held.caches[1].r64[:7], fresh.caches[1].r64[:7], rtol=1e-12, atol=1e-14)
    assert held.ids == IDS[:7]


def test_computing_leaves_the_model_in_training(gpt: GPT) -> None:
    gpt.train()
    gpt.h[0].eval()
    GptReference(gpt).compute(IDS)
    assert gpt.training
    assert not gpt.h[0].training
    assert next(gpt.parameters()).dtype == torch.float32
    gpt.train()


def test_greedy_is_the_argmax_of_the_whole_sequence(gpt: GPT) -> None:
    tokens = GptReference(gpt).greedy(IDS[:4], 6)
    ids = IDS[:4]
    for token in tokens:
        assert token == int(float64_logits(gpt, ids)[-1].argmax())
        ids = (*ids, token)
    assert len(tokens) == 6


def test_greedy_ends_where_learned_positions_end() -> None:
    learned = GPT(
        GPTConfig(vocab_size=31, context_length=8, n_embd=16, n_layer=1, n_head=2, position="learned")
    )
    assert len(GptReference(learned).greedy(IDS[:6], 50)) == 3


class Counter(nn.Module):
    """Logits are a running sum of embeddings: causal, any length."""

    def __init__(self, vocab_size: int = 31) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, ids: Tensor) -> Any:
        return self.table(ids).cumsum(dim=1)


class LastOnly(Counter):
    def forward(self, ids: Tensor) -> Any:
        return super().forward(ids)[:, [-1]], None


class Flat(Counter):
    def forward(self, ids: Tensor) -> Any:
        return {"loss": torch.zeros(()), "logits": super().forward(ids)[:, -1]}


class Averaging(Counter):
    def forward(self, ids: Tensor) -> Any:
        return self.table(ids).mean(dim=1, keepdim=True) + self.table(ids)


class Short(Counter):
    def forward(self, ids: Tensor) -> Any:
        assert ids.shape[1] <= 6, "block size exceeded"
        return super().forward(ids)


class HardCoded(Counter):
    """Written for float32 all through, as many programs are."""

    def forward(self, ids: Tensor) -> Any:
        steps = torch.arange(ids.shape[1], dtype=torch.float32).float()
        scale = torch.full((1,), 3.0).sqrt()
        return self.table(ids).to(torch.float32) * scale + torch.sin(steps / 7)[:, None]


class Stubborn(Counter):
    """Refuses float64."""

    def forward(self, ids: Tensor) -> Any:
        out = super().forward(ids)
        if out.dtype != torch.float32:
            raise RuntimeError("expected scalar type Float but found Double")
        return out


def test_a_module_is_computed_in_float64() -> None:
    module = Counter()
    truth = ModuleReference(module).compute(IDS)
    expected = module.table.weight.detach().double().numpy()[list(IDS)].cumsum(axis=0)
    np.testing.assert_allclose(truth.logits(), expected, rtol=1e-13)
    assert ModuleReference(module).dtype == "float64"
    assert module.table.weight.dtype == torch.float32


@pytest.mark.parametrize("module", [LastOnly(), Flat()])
def test_logits_of_the_last_position_alone_are_recognised(module: nn.Module) -> None:
    truth = ModuleReference(module).compute(IDS)
    assert truth.first == len(IDS) - 1
    assert truth.logits().shape == (1, 31)
    assert truth.ratio(truth.logits().astype(np.float32)).passed


def test_float32_written_into_the_code_is_widened() -> None:
    module = HardCoded()
    truth = ModuleReference(module).compute(IDS)
    table = module.table.weight.detach().double().numpy()[list(IDS)]
    expected = table * math.sqrt(3) + np.sin(np.arange(20) / 7)[:, None]
    np.testing.assert_allclose(truth.logits(), expected, rtol=1e-13, atol=1e-15)
    assert torch.get_default_dtype() == torch.float32


def test_a_module_that_refuses_float64_is_its_own_reference() -> None:
    module = Stubborn()
    reference = ModuleReference(module)
    truth = reference.compute(IDS)
    assert reference.dtype == "float32"
    with torch.no_grad():
        np.testing.assert_array_equal(truth.logits(), module(torch.tensor([IDS]))[0].double().numpy())
    scale = np.abs(truth.logits()).max()
    assert 2**-24 * scale <= truth.unit().peak <= 100 * 2**-23 * scale


def test_a_length_that_the_module_refuses_is_told_apart() -> None:
    reference = ModuleReference(Short())
    assert len(reference.compute(IDS[:6]).logits()) == 6
    with pytest.raises(Refused, match="block size exceeded"):
        reference.compute(IDS[:7])
    assert reference.dtype == "float64"
    assert len(reference.greedy(IDS[:4], 10)) == 3


@pytest.mark.parametrize(
    ("module", "causal"), [(Counter(), True), (Averaging(), False), (LastOnly(), False), (Short(), False)]
)
def test_causality_is_found_out(module: nn.Module, causal: bool) -> None:
    assert ModuleReference(module).causal is causal


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    module = Counter()
    module.stream = (token for token in IDS)  # type: ignore[assignment]
    with pytest.raises(ExportError, match="cannot be copied"):
        ModuleReference(module)


def test_a_module_without_logits_is_refused() -> None:
    with pytest.raises(ExportError, match="without logits"):
        logits_in((torch.zeros(()), None))


def test_logits_of_a_strange_shape_are_refused() -> None:
    class Strange(Counter):
        def forward(self, ids: Tensor) -> Any:
            return super().forward(ids)[:, :2]

    with pytest.raises(ExportError, match="was expected"):
        ModuleReference(Strange()).compute(IDS)
