"""The scan before fp16: peaks by the part that makes them, a refusal within a factor of two of the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError, ExportError
from gpt_onnx.export import ExportOptions, export_bundle
from gpt_onnx.export.activations import check_activations, peaks_of
from gpt_onnx.export.gpt_source import GptSource
from gpt_onnx.export.module_source import ModuleSource
from gpt_onnx.export.quality_texts import Texts, read_texts
from gpt_onnx.model import GPT

SIZES = {"vocab_size": 31, "context_length": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}


def _silent(step: str, done: int, total: int) -> None:
    """Tell nobody."""


def _gpt(**changes: Any) -> Any:
    torch.manual_seed(0)
    return GPT(GPTConfig.from_dict(SIZES | changes)).eval()


def _texts() -> Texts:
    texts = read_texts(None, 31, None)
    return Texts(calibration=texts.calibration[:320], quality=texts.quality, name=texts.name)


def _peaks(source: Any) -> dict[str, float]:
    return {peak.name: peak.value for peak in peaks_of(source, _texts(), 16, _silent)}


def test_peaks_are_those_of_the_parts_that_make_them() -> None:
    gpt, seen = _gpt(position="rotary"), dict[str, float]()

    def note(name: str) -> Any:
        def hook(module: Any, inputs: Any, output: Any) -> None:
            parts = (inputs[0], output - (0 if module.bias is None else module.bias), module.weight)
            seen[name] = max(seen.get(name, 0.0), *(float(part.abs().max()) for part in parts))

        return hook

    linear = {name: part for name, part in gpt.named_modules() if isinstance(part, torch.nn.Linear)}
    handles = [part.register_forward_hook(note(name)) for name, part in linear.items()]
    ids = torch.from_numpy(_texts().calibration.ids).reshape(20, 16)
    with torch.no_grad():
        for row in ids:
            gpt(row[None])
    for handle in handles:
        handle.remove()
    found = _peaks(GptSource.of_model(gpt))
    assert set(found) == {*linear, "h.0.attn", "h.1.attn", "the head"}
    for name, value in seen.items():
        assert found[name] == pytest.approx(value, rel=1e-4), name


def test_scores_of_attention_are_looked_at() -> None:
    gpt = _gpt()
    with torch.no_grad():
        gpt.h[1].attn.c_attn.weight.mul_(1e4)
    found = _peaks(GptSource.of_model(gpt))
    assert found["h.1.attn"] > 100 * found["h.0.attn"]


def test_a_module_of_anybody_s_is_looked_at_part_by_part() -> None:
    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte = torch.nn.Embedding(31, 8)
            self.wide = torch.nn.Linear(8, 8)
            self.out = torch.nn.Linear(8, 31)

        def forward(self, ids: Any) -> Any:
            return self.out(self.wide(self.wte(ids)))

    module = Mine().eval()
    with torch.no_grad():
        module.wide.weight.fill_(1e5)
    source = ModuleSource(module, ExportOptions(kv_cache=False))
    with pytest.raises(ExportError, match=r"^(wide|out) reaches [\d,]+ on 320 tokens \(random ids"):
        check_activations(source, _texts(), 16, _silent)


@pytest.mark.parametrize(("peak", "refused"), [(32_000, False), (33_000, True)])
def test_half_of_where_float16_ends_is_the_limit(peak: float, refused: bool) -> None:
    gpt = _gpt()
    with torch.no_grad():
        weight = gpt.h[1].mlp.c_proj.weight
        weight.zero_()
        weight[3, 5] = peak  # what it multiplies is below 1, so that the weight is the largest number
    source = GptSource.of_model(gpt)
    if not refused:
        assert check_activations(source, _texts(), 16, _silent).value == pytest.approx(peak)
        return
    with pytest.raises(ExportError) as caught:
        check_activations(source, _texts(), 16, _silent)
    assert str(caught.value) == (
        "h.1.mlp.c_proj reaches 33,000 on 320 tokens (random ids: there is no tokenizer), and fp16 is for "
        "models that stay below 32,752, half of where float16 ends; keep fp32, or choose int8 or int4, whose "
        "activations are float32."
    )


def test_a_weight_beyond_float16_is_refused_by_name(tmp_path: Path) -> None:
    gpt = _gpt(position="learned")
    with torch.no_grad():
        gpt.wpe.weight[2, 3] = 7e4
        gpt.ln_f.weight.mul_(1e-3)
    with pytest.raises(ExportError, match=r"wpe\.weight has 70,000 and float16 ends at 65,504; keep fp32"):
        export_bundle(gpt, tmp_path / "b", target="portable", precision="fp16", check="none")
    assert list(tmp_path.iterdir()) == []


def test_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.arange(100) % 31)
    with pytest.raises(ConfigError, match=r"100 ids"):
        export_bundle(
            _gpt(),
            tmp_path / "b",
            target="portable",
            precision="fp16",
            calibration=tmp_path / "ids.npy",
            check="none",
        )
