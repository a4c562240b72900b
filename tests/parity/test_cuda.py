"""Bundles on a CUDA card: the same numbers, all arithmetic on the card, never a silent fallback.

Runs wherever onnxruntime-gpu finds a card; elsewhere every test says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.errors import ProviderError
from gpt_onnx.export.gate import GptReference, run_gate
from gpt_onnx.runtime import OnnxGPT, Sampling
from gpt_onnx.runtime.bench import BenchPlan, bench
from gpt_onnx.runtime.placement import floats_off, placement
from gpt_onnx.runtime.providers import find_device, import_onnxruntime

CUDA = "cuda"
GREEDY = Sampling(temperature=0.0)
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [5, 3], [8, 9, 7, 9, 3]]
LAYOUTS: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"seq_len": 24, "batch_size": 1},
    "plain": {"kv_cache": False},
}

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module", autouse=True)
def card(export_unchecked: Callable[..., Path], make_gpt: Callable[..., Any]) -> None:
    """Skip, with the reason, where a small bundle cannot be loaded on a card."""
    try:
        import_onnxruntime(find_device(CUDA))
        OnnxGPT.load(export_unchecked(make_gpt(n_layer=1), target="portable"), CUDA)
    except ProviderError as exc:
        pytest.skip(str(exc))


@pytest.fixture(scope="module", params=list(LAYOUTS))
def bundle(
    request: pytest.FixtureRequest, export_unchecked: Callable[..., Path], make_gpt: Callable[..., Any]
) -> Path:
    """A portable bundle in each layout."""
    return export_unchecked(make_gpt(), target="portable", **LAYOUTS[request.param])


def test_the_gate_passes_on_the_card(bundle: Path, make_gpt: Callable[..., Any]) -> None:
    report = run_gate(bundle, GptReference(make_gpt()), level="quick", provider=CUDA)
    assert report.passed, report.summary()
    assert report.provider == find_device(CUDA).name


def test_all_floating_point_runs_on_the_card(bundle: Path) -> None:
    device = find_device(CUDA)
    assert not floats_off(placement(bundle, CUDA), device.provider)


def test_greedy_tokens_are_those_of_the_cpu(bundle: Path) -> None:
    on_cpu, on_card = (OnnxGPT.load(bundle, provider) for provider in ("cpu", CUDA))
    for prompt in PROMPTS:
        expected = on_cpu.generate([prompt], 12, GREEDY)
        assert on_card.generate([prompt], 12, GREEDY) == expected


def test_a_batch_equals_its_solo_runs(
    export_unchecked: Callable[..., Path], make_gpt: Callable[..., Any]
) -> None:
    engine = OnnxGPT.load(export_unchecked(make_gpt(), target="portable"), CUDA)
    solo = [engine.generate([prompt], 12, GREEDY)[0] for prompt in PROMPTS]
    assert engine.generate(PROMPTS, 12, GREEDY) == solo


def test_a_cpu_bundle_is_refused_with_the_command_to_use(
    export_unchecked: Callable[..., Path], make_gpt: Callable[..., Any]
) -> None:
    with pytest.raises(ProviderError, match="--target portable"):
        OnnxGPT.load(export_unchecked(make_gpt(), target="cpu"), CUDA)


def test_eager_pytorch_is_measured_on_the_same_card(
    export_unchecked: Callable[..., Path], make_gpt: Callable[..., Any], tmp_path: Path
) -> None:
    gpt = make_gpt()
    write_checkpoint(tmp_path / "tiny", gpt.config, gpt.state_dict())
    bundle = export_unchecked(gpt, target="portable")
    plan = BenchPlan(prompt_tokens=(8,), new_tokens=8, repetitions=2, provider=CUDA)
    report = bench([bundle], against=tmp_path / "tiny", plan=plan)
    assert {contender.device for contender in report.contenders} == {find_device(CUDA).name}
    versus = report.contenders[0].prompts[0].versus
    assert versus is not None
    assert versus.tokens.verdict != "different"
    assert np.isfinite(versus.decode.ratio)
