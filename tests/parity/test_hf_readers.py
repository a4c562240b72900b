"""Hugging Face folders against transformers' own models in float64: logits, and greedy tokens.

transformers computes rotary angles and RMSNorm in float32 whatever the model's dtype is; ``exact`` replaces
both, so that float64 is float64 throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.originals.hugging_face import (
    VARIANTS,
    exact,
    make_model,
    save,
)

pytestmark = pytest.mark.filterwarnings("ignore::gpt_onnx.runtime._checks.LengthWarning")

FLOOR = 8 * 2.0**-24
LENGTHS = (1, 2, 17, 64)
BEYOND = 150  # tokens: more than twice the context of the models with rotary positions
NEW_TOKENS = 128


def logits_of(model: Any, ids: list[int]) -> NDArray[Any]:
    """Compute the logits of one sequence, (S, V)."""
    with torch.no_grad():
        return np.asarray(model(torch.tensor([ids]), use_cache=False).logits[0].numpy())


def ids_of(length: int, seed: int = 3) -> list[int]:
    return [int(number) for number in np.random.default_rng(seed).integers(0, 97, length)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_our_model_of_a_folder_is_theirs_in_float64(variant: str, tmp_path: Path) -> None:
    theirs = make_model(variant)
    checkpoint = read_checkpoint(save(theirs, tmp_path / "model", "safetensors"))
    assert not [note for note in checkpoint.notes if "keys" in note]
    ours = load_model(checkpoint).double()
    reference, ids = exact(theirs, torch.float64), ids_of(64)
    with torch.no_grad():
        found = ours(torch.tensor([ids]))[0][0].numpy()
    expected = logits_of(reference, ids)
    assert np.abs(found - expected).max() < 1e-11 * np.abs(expected).max()


@pytest.mark.parametrize("variant", ["llama llama3", "qwen2"])
def test_the_exact_model_is_the_one_of_transformers(variant: str) -> None:
    model, ids = make_model(variant), ids_of(64)
    expected = logits_of(exact(model, torch.float64), ids)
    assert np.abs(logits_of(model, ids) - expected).max() < 1e-4 * np.abs(expected).max()


@dataclass(frozen=True, slots=True)
class Exported:
    """A bundle, and the model that it was made of in two precisions."""

    engine: OnnxGPT
    float64: Any
    float32: Any

    def unit(self, ids: list[int]) -> tuple[np.ndarray[Any, Any], float]:
        """The logits in float64, and what float32 costs."""
        expected = logits_of(self.float64, ids)
        error = np.abs(logits_of(self.float32, ids) - expected).max()
        return expected, max(float(error), FLOOR * float(np.abs(expected).max()))


FORMS = {
    "gpt2": "bin",
    "llama": "shards",
    "mistral": "safetensors",
    "qwen2 tied": "shards",
}
"""Each family, and the form in which its folder is written."""


BUNDLES = [
    pytest.param((variant, target), id=f"{variant}-{target}", marks=marks)
    for target, variants, marks in (
        ("cpu", tuple(FORMS), ()),
        ("portable", ("gpt2", "llama"), ()),
        (
            "portable",
            ("mistral", "qwen2 tied"),
            pytest.mark.slow,
        ),  # what differs from llama has been read
    )
    for variant in variants
]


@pytest.fixture(scope="module", params=BUNDLES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    variant, target = request.param
    folder, model = tmp_path_factory.mktemp("folder"), make_model(variant)
    export_bundle(
        save(model, folder / "model", FORMS[variant]), folder / "bundle", target=target, check="none"
    )
    return Exported(
        OnnxGPT.load(folder / "bundle", threads=1), exact(model, torch.float64), exact(model, torch.float32)
    )


def test_logits_are_theirs(exported: Exported) -> None:
    worst = 0.0
    for length in (*LENGTHS, BEYOND):
        ids = ids_of(length)
        expected, unit = exported.unit(ids)
        worst = max(worst, float(np.abs(exported.engine.logits([ids])[0] - expected).max()) / unit)
    print(f"ratio {worst:.2f}")
    assert worst <= 4


def test_greedy_tokens_are_theirs(exported: Exported) -> None:
    prompt = ids_of(16, seed=5)
    [generation] = exported.engine.generate(
        [prompt], NEW_TOKENS, sampling=Sampling(temperature=0.0), ignore_eos=True
    )
    tokens = list(generation.ids)
    assert len(tokens) == NEW_TOKENS
    logits, unit = exported.unit([*prompt, *tokens[:-1]])
    rows = logits[len(prompt) - 1 :]
    short = rows.max(axis=-1) - rows[np.arange(NEW_TOKENS), tokens]
    print(f"near ties {int((short > 0).sum())}, distinct {len(set(tokens))}")
    assert short.max() <= 2 * 4 * unit
    assert len(set(tokens)) > 3
