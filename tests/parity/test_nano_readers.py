"""Checkpoints of nanoGPT and minGPT against those programs' modules in float64: logits, and greedy tokens."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.nano_models import new_gelu
from tests.originals.nano import answered, made, save

FLOOR = 8 * 2.0**-24
LENGTHS = (1, 2, 17, 160)
NEW_TOKENS = 128


NAMES = (
    "nanogpt",
    "nanogpt without biases",
    "nanogpt of early 2023",
    "nanogpt with padding",
    "nanogpt state",
    "mingpt",
    "older mingpt",
)
EXPORTED = [
    ("nanogpt", "cpu"),
    ("older mingpt", "cpu"),
    pytest.param(("mingpt", "cpu"), marks=pytest.mark.slow),
    pytest.param(("nanogpt without biases", "cpu"), marks=pytest.mark.slow),
    pytest.param(("nanogpt", "portable"), marks=pytest.mark.slow),
    pytest.param(("older mingpt", "portable"), marks=pytest.mark.slow),
]


def logits_of(model: Any, ids: list[int], dtype: torch.dtype) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        return np.asarray(copy.deepcopy(model).to(dtype)(torch.tensor([ids]))[0].double().numpy())


def ids_of(length: int, seed: int = 3) -> list[int]:
    return [int(number) for number in np.random.default_rng(seed).integers(0, 97, length)]


@pytest.mark.parametrize("name", NAMES)
def test_our_model_of_a_checkpoint_is_theirs_in_float64(name: str, tmp_path: Path) -> None:
    case = made(name)
    path = save(case, tmp_path / "ckpt.pt")
    checkpoint = read_checkpoint(path, config=answered(case, tmp_path))
    expected = logits_of(case.model, ids := ids_of(64), torch.float64)[:, : checkpoint.config.vocab_size]
    with torch.no_grad():
        found = load_model(checkpoint).double()(torch.tensor([ids]))[0][0].numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-11 * np.abs(expected).max()


def test_the_activation_matters() -> None:
    """The two GELUs are far apart beside the tolerance, so that the wrong one would be found."""
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    assert (F.gelu(x) - new_gelu(x)).abs().max() > 1e-4


@pytest.fixture(scope="module", params=EXPORTED, ids=str)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, OnnxGPT]:
    name, target = request.param
    folder, case = tmp_path_factory.mktemp("nano"), made(name)
    path = save(case, folder / "ckpt.pt")
    export_bundle(path, folder / "bundle", target=target, check="none", config=answered(case, folder))
    return case.model, OnnxGPT.load(folder / "bundle", threads=1)


def test_logits_are_theirs(exported: tuple[Any, OnnxGPT]) -> None:
    model, engine = exported
    worst = 0.0
    for length in LENGTHS:
        ids = ids_of(length)
        expected, single = (logits_of(model, ids, dtype) for dtype in (torch.float64, torch.float32))
        unit = max(float(np.abs(single - expected).max()), FLOOR * float(np.abs(expected).max()))
        worst = max(worst, float(np.abs(engine.logits([ids])[0] - expected).max()) / unit)
    print(f"ratio {worst:.2f}")
    assert worst <= 4


def test_greedy_tokens_are_theirs(exported: tuple[Any, OnnxGPT]) -> None:
    model, engine = exported
    prompt = ids_of(16, seed=5)
    greedy = Sampling(temperature=0.0)
    [generation] = engine.generate([prompt], NEW_TOKENS, sampling=greedy, ignore_eos=True)
    exact, ids = copy.deepcopy(model).double(), list(prompt)
    with torch.no_grad():
        while len(ids) < len(prompt) + NEW_TOKENS:
            ids.append(int(exact(torch.tensor([ids]))[0, -1].argmax()))
    assert list(generation.ids) == ids[len(prompt) :]
