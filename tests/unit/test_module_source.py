"""Modules of anybody's: exported as they stand, left as they were."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gpt_onnx.bundle import read_graph
from gpt_onnx.errors import ConfigError, ExportError, InputError
from gpt_onnx.export import ExportOptions, export_bundle
from gpt_onnx.export.gpt_source import GptSource
from gpt_onnx.export.module_source import ModuleSource, in_float32
from gpt_onnx.export.source import resolve

FOREIGN = Path(__file__).parent / "foreign_modules.py"
V = 61


class Bigram(nn.Module):
    """The smallest module with a dropout, a buffer and modes to restore."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(V, 8)
        self.drop = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, V)
        self.register_buffer("shift", torch.linspace(0, 1, 8, dtype=torch.float64), persistent=False)

    def forward(self, idx: Tensor) -> Any:
        x = self.drop(self.table(idx))
        out: Tensor = self.head(self.norm(x + self.shift.to(x.dtype)))
        return out


def _expected(module: nn.Module, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        result = copy.deepcopy(module).eval()(torch.from_numpy(ids))
    found = result[0] if isinstance(result, tuple) else result
    assert isinstance(found, Tensor)
    return found.numpy()


def _load(name: str) -> nn.Module:
    module = resolve(f"{FOREIGN}:{name}", ExportOptions())
    assert isinstance(module, ModuleSource)
    return module.module


@pytest.mark.parametrize("name", ["walk_through", "nano_gpt"])
def test_a_gpt_written_by_hand_computes_the_same_at_every_length(
    exported: Any, run_ort: Any, name: str
) -> None:
    report, module = exported(f"{FOREIGN}:{name}"), _load(name)
    assert report.manifest.name == "foreign_modules"
    assert report.manifest.graph.layout == "plain"
    assert report.manifest.graph.attention == "traced"
    for batch, length in ((1, 1), (3, 2), (2, 7), (1, 40)):
        ids = np.random.default_rng(length).integers(0, V, (batch, length))
        found = run_ort(report.path / "onnx/model.onnx", {"input_ids": ids})["logits"]
        np.testing.assert_allclose(found, _expected(module, ids), rtol=1e-4, atol=1e-5)


def test_logits_of_the_last_position_alone_are_said(exported: Any) -> None:
    nano = exported(f"{FOREIGN}:nano_gpt")
    (note,) = nano.notes
    assert note.startswith("The module returns the logits of the last position alone")
    assert note in (nano.path / "README.md").read_text()
    outputs = read_graph(nano.path / "onnx/model.onnx").outputs
    assert [list(value.dims) for value in outputs] == [["batch_size", 1, V]]
    assert exported(f"{FOREIGN}:walk_through").notes == ()


def test_limits_of_the_foreign_module_are_recorded(exported: Any) -> None:
    for name in ("walk_through", "nano_gpt"):
        model = exported(f"{FOREIGN}:{name}").manifest.model
        assert (model.vocab_size, model.position_limit, model.context_length) == (V, 40, 40)
        assert model.parameters == sum(p.numel() for p in _load(name).parameters())
        assert model.n_layer == 0


def test_tied_weights_are_stored_once(exported: Any) -> None:
    report = exported(f"{FOREIGN}:nano_gpt")
    assert report.payload_bytes == 4 * report.manifest.model.parameters
    summary = read_graph(report.path / "onnx/model.onnx")
    assert [weight.name for weight in summary.initializers if weight.dims == (V, 32)] == [
        "transformer.wte.weight"
    ]
    assert summary.op_counts[("", "Gemm")] == 1


def test_equal_masks_of_all_heads_are_one(exported: Any) -> None:
    summary = read_graph(exported(f"{FOREIGN}:walk_through").path / "onnx/model.onnx")
    assert sum(weight.dims == (40, 40) for weight in summary.initializers) == 1
    assert summary.op_counts[("", "Equal")] == 1


def test_only_a_plain_bundle_is_made(exported: Any) -> None:
    report = exported(f"{FOREIGN}:walk_through")
    assert report.manifest.options["kv_cache"] is False
    files = {path.name for path in report.path.rglob("*") if path.is_file()}
    assert "genai_config.json" not in files


@pytest.mark.parametrize("fails", [False, True])
def test_every_mode_is_restored_also_on_failure(tmp_path: Path, fails: bool) -> None:
    module = Bigram().train()
    module.norm.eval()
    if fails:
        module.head = nn.Linear(9, V)  # fits nothing
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    if fails:
        with pytest.raises(ExportError):
            export_bundle(module, tmp_path / "bundle", check="none")
    else:
        export_bundle(module, tmp_path / "bundle", check="none")
    modes = {name: part.training for name, part in module.named_modules()}
    assert modes == {"": True, "table": True, "drop": True, "norm": False, "head": True}
    assert all(torch.equal(state[name], tensor) for name, tensor in module.state_dict().items())
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_dropout_is_off_in_the_graph(tmp_path: Path, run_ort: Any) -> None:
    module = Bigram().train()
    export_bundle(module, tmp_path / "bundle", check="none")
    ids = np.arange(12).reshape(2, 6)
    found = run_ort(tmp_path / "bundle/onnx/model.onnx", {"input_ids": ids})["logits"]
    np.testing.assert_allclose(found, _expected(module, ids), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_modules_are_upcast_exactly(dtype: torch.dtype) -> None:
    module = Bigram().to(dtype)
    source = ModuleSource(module, ExportOptions())
    for name in ("table.weight", "head.bias"):
        found = torch.from_numpy(source.weight(name))
        assert found.dtype == torch.float32
        assert torch.equal(found.to(dtype), module.get_parameter(name))
    assert module.table.weight.dtype == dtype


def test_buffers_of_float64_keep_their_digits_beside_half_weights() -> None:
    module = Bigram()
    for parameter in module.parameters():
        parameter.data = parameter.data.half()
    wide = in_float32(module)
    assert wide.get_buffer("shift").dtype == torch.float64
    assert {parameter.dtype for parameter in wide.parameters()} == {torch.float32}
    assert {parameter.dtype for parameter in in_float32(Bigram().double()).parameters()} == {torch.float32}


def test_a_float32_module_is_not_copied() -> None:
    module = Bigram()
    assert in_float32(module) is module


class OddlyNamed(Bigram):
    """Its parameters have the names that the graph needs for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.ones(V))
        self.input_ids = nn.Parameter(torch.ones(300))

    def forward(self, idx: Tensor) -> Any:
        return super().forward(idx) * self.logits + self.input_ids.sum()


def test_parameters_may_be_called_like_inputs_and_outputs(tmp_path: Path, run_ort: Any) -> None:
    module = OddlyNamed()
    export_bundle(module, tmp_path / "bundle", check="none")
    ids = np.arange(12).reshape(2, 6)
    found = run_ort(tmp_path / "bundle/onnx/model.onnx", {"input_ids": ids})["logits"]
    np.testing.assert_allclose(found, _expected(module, ids), rtol=1e-4, atol=1e-4)


def test_a_size_of_the_example_that_the_model_has_too_is_no_error(tmp_path: Path) -> None:
    """97 and 61 are the usual example's; here they come from a product that no attribute tells."""

    class Folding(Bigram):
        def forward(self, idx: Tensor) -> Any:
            x = super().forward(idx)
            return x.repeat(1, 1, 97).unflatten(-1, (97, V)).mean(-2)

    report = export_bundle(Folding(), tmp_path / "bundle", check="none")
    assert report.manifest.model.vocab_size == V


class Smallest(nn.Module):
    """Weights of 100 bytes, which stay in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 5)

    def forward(self, idx: Tensor) -> Any:
        return self.table(idx)


def test_a_module_may_be_too_small_for_a_data_file(tmp_path: Path, run_ort: Any) -> None:
    module = Smallest()
    report = export_bundle(module, tmp_path / "bundle", check="none")
    assert report.manifest.graph.data is None
    assert [path.name for path in (tmp_path / "bundle/onnx").iterdir()] == ["model.onnx"]
    ids = np.array([[4, 2]])
    found = run_ort(tmp_path / "bundle/onnx/model.onnx", {"input_ids": ids})["logits"]
    np.testing.assert_array_equal(found, _expected(module, ids))


def test_our_own_gpt_keeps_its_cache_and_a_changed_one_is_foreign(make_gpt: Any) -> None:
    from gpt_onnx.model import GPT

    class Louder(GPT):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            logits, cache = super().forward(*args, **kwargs)
            return 2 * logits, cache

    options, gpt = ExportOptions(), make_gpt()
    assert isinstance(resolve(gpt, options), GptSource)
    assert isinstance(resolve(Louder(gpt.config), options), ModuleSource)
    changed = copy.deepcopy(gpt)
    changed.h[0].ln_1 = nn.Identity()
    assert isinstance(resolve(changed, options), ModuleSource)


def test_a_configuration_tells_the_context(tmp_path: Path, make_gpt: Any) -> None:
    text = '{"vocab_size": 61, "block_size": 33, "n_embd": 8, "n_layer": 1, "n_head": 1}'
    (tmp_path / "config.json").write_text(text)
    source = ModuleSource(Bigram(), ExportOptions(config=tmp_path / "config.json"))
    assert source.context_length == 33
    (tmp_path / "config.toml").write_text("vocab_size = 61\n")
    with pytest.raises(ConfigError, match="lacks 'context_length'"):
        ModuleSource(Bigram(), ExportOptions(config=tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text("vocab_size = \n")
    with pytest.raises(ConfigError, match="could not be read as TOML"):
        ModuleSource(Bigram(), ExportOptions(config=tmp_path / "config.toml"))
    with pytest.raises(InputError, match="the source tells its own configuration"):
        resolve(make_gpt(), ExportOptions(config=tmp_path / "config.json"))


def test_the_hash_follows_weights_and_not_the_mode() -> None:
    module = Bigram()
    first = ModuleSource(module, ExportOptions()).sha256()
    assert ModuleSource(copy.deepcopy(module).eval(), ExportOptions()).sha256() == first
    with torch.no_grad():
        module.head.bias[0] += 1
    assert ModuleSource(module, ExportOptions()).sha256() != first
