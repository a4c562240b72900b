"""Modules of one's own with a KV cache: mapped by a table of names, and compared with themselves."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpt_onnx.errors import CheckpointError, ConfigError, ExportError, InputError, ParityError
from gpt_onnx.export import ExportOptions, export_bundle
from gpt_onnx.export.source import config_template, resolve
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.originals import own_module
from tests.originals.own_module import CONFIG, NAMES, VOCAB, mine


def _tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


@pytest.fixture
def described(tmp_path: Path) -> dict[str, Any]:
    """The options that describe the module."""
    (tmp_path / "names.toml").write_text(NAMES)
    (tmp_path / "config.toml").write_text(CONFIG)
    return {"names": tmp_path / "names.toml", "config": tmp_path / "config.toml"}


IDS = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, (1, 48)))


def test_a_mapped_module_has_a_cache_and_gives_its_own_text(tmp_path: Path, described: Any) -> None:
    module = mine()
    report = export_bundle(module, tmp_path / "bundle", check="quick", **described)
    assert report.manifest.graph.layout == "dynamic"
    assert report.manifest.graph.attention == "gqa"
    assert report.gate is not None
    assert report.gate.reference_dtype == "float64"
    engine = OnnxGPT.load(tmp_path / "bundle")
    r64 = copy.deepcopy(module).double()
    with torch.no_grad():
        r32, expected = module(IDS)[0].double().numpy(), r64(IDS)[0].numpy()
        prompt = IDS[:, :8]
        ids = prompt
        for _ in range(128):
            ids = torch.cat([ids, r64(ids)[:, -1:].argmax(-1)], 1)
    (found,) = engine.logits([tuple(IDS[0].tolist())])
    unit = max(np.abs(r32 - expected).max(), 8 * 2**-24 * np.abs(expected).max())
    assert np.abs(found - expected).max() <= 4 * unit
    (generation,) = engine.generate([prompt[0].tolist()], 128, Sampling(temperature=0))
    assert list(generation.ids) == ids[0, 8:].tolist()


def _truth(module: nn.Module, described: Any) -> Any:
    """What the gate compares the graph with, on 12 tokens."""
    (truth,) = (
        resolve(module, ExportOptions(**described)).reference().compute_all([tuple(IDS[0, :12].tolist())])
    )
    return truth


def test_the_last_position_of_a_module_that_gives_no_other_counts(described: Any) -> None:
    truth, whole = _truth(mine(last_only=True), described), _truth(mine(), described)
    assert truth.first == 0
    assert truth.logits().shape == (12, VOCAB)
    assert len(truth.caches) == 4
    assert np.abs(truth.logits() - whole.logits()).max() < 1e-12
    other = _truth(mine(_tanh, last_only=True), described)
    assert not whole.ratio(other.logits([11]), 11).passed
    assert whole.ratio(other.logits(slice(11)), 0).passed


def test_a_module_that_looks_ahead_differs(described: Any) -> None:
    module = mine()
    module.seen.fill_(1.0)  # type: ignore[operator]
    assert not _truth(module, described).ratio(_truth(mine(), described).logits()).passed


def test_a_module_that_computes_something_else_is_told(tmp_path: Path, described: Any) -> None:
    with pytest.raises(ParityError, match="differ from mine"):
        export_bundle(mine(_tanh), tmp_path / "bundle", check="quick", **described)
    assert not (tmp_path / "bundle").exists()


def test_a_file_of_code_may_be_mapped(tmp_path: Path, described: Any) -> None:
    path = tmp_path / "mygpt.py"
    path.write_text(
        "from torch import nn\n"
        "class Bigram(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.words = nn.Embedding(5, 4)\n"
        "build = Bigram\n"
    )
    with pytest.raises(CheckpointError, match=r"no tensor is h\.0\."):
        resolve(f"{path}:build", ExportOptions(**described))


def test_the_bundle_is_called_as_the_file(tmp_path: Path, described: Any) -> None:
    (tmp_path / "mygpt.py").write_text(
        f"import runpy\nbuild = runpy.run_path({own_module.__file__!r})['mine']\n"
    )
    source = resolve(f"{tmp_path / 'mygpt.py'}:build", ExportOptions(**described))
    assert source.name == "mygpt"
    assert source.config is not None
    assert source.config.d_ff == 96
    assert source.reference().name == "mygpt"
    assert source.reference().is_original


def test_without_a_table_it_is_traced_as_it_stands(described: Any) -> None:
    assert resolve(mine(), ExportOptions()).config is None


def test_an_open_question_is_asked(described: Any) -> None:
    with pytest.raises(InputError, match=r"Mine does not say n_head .*activation"):
        resolve(mine(), ExportOptions(names=described["names"]))
    template = config_template(mine(), ExportOptions(names=described["names"]))
    assert template is not None
    assert "d_ff = 96" in template


def test_a_wrong_answer_is_told(tmp_path: Path, described: Any) -> None:
    (tmp_path / "config.toml").write_text(CONFIG + "d_ff = 128\n")
    with pytest.raises(ConfigError, match="d_ff = 128; the tensors of Mine say 96"):
        resolve(mine(), ExportOptions(**described))


def test_left_over_weights_are_told(tmp_path: Path, described: Any) -> None:
    (tmp_path / "names.toml").write_text(NAMES.replace('ignore = ["seen"]', ""))
    with pytest.raises(
        CheckpointError, match=r"Mine: .* not known by name: seen \[160, 160\] like no weight"
    ):
        resolve(mine(), ExportOptions(**described))


def test_a_module_without_values_is_refused(described: Any) -> None:
    with pytest.raises(ExportError, match=r"words\.weight is on the meta device"):
        resolve(mine().to("meta"), ExportOptions(**described))


def test_weights_that_are_not_finite_are_told(described: Any) -> None:
    module = mine()
    with torch.no_grad():
        module.words.weight[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match=r"Mine: words\.weight has NaN or infinity"):
        resolve(module, ExportOptions(**described)).weight("wte.weight")
