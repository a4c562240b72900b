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

VOCAB, WIDTH, HEADS, CONTEXT = 61, 32, 4, 160


class Layer(nn.Module):
    """A block as its maker calls the parts: attention with one matrix each, and a network."""

    def __init__(self, activation: Any) -> None:
        super().__init__()
        self.before_attention, self.before_network = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.asks, self.keys, self.says = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mixes = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, s, _ = x.shape
        h = self.before_attention(x)
        q, k, v = (m(h).view(b, s, HEADS, -1).transpose(1, 2) for m in (self.asks, self.keys, self.says))
        scores = (q @ k.transpose(-2, -1)) / (WIDTH // HEADS) ** 0.5
        weights = scores.masked_fill(mask[:s, :s] == 0, float("-inf")).softmax(dim=-1)
        x = x + self.mixes((weights @ v).transpose(1, 2).reshape(b, s, WIDTH))
        out: Tensor = x + self.narrow(self.activation(self.wide(self.before_network(x))))
        return out


class Mine(nn.Module):
    """A GPT of somebody's, with learned positions and a mask as a buffer."""

    def __init__(self, activation: Any = F.gelu, *, last_only: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.stack = nn.ModuleList(Layer(activation) for _ in range(2))
        self.end = nn.LayerNorm(WIDTH)
        self.answer = nn.Linear(WIDTH, VOCAB, bias=False)
        self.register_buffer("seen", torch.ones(CONTEXT, CONTEXT).tril())
        self.last_only = last_only

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.stack:
            x = layer(x, self.seen)
        out: Tensor = self.answer(self.end(x[:, -1:] if self.last_only else x))
        return out


NAMES = """
ignore = ["seen"]
[names]
"words.weight" = "wte.weight"
"places.weight" = "wpe.weight"
"end.weight" = "ln_f.weight"
"end.bias" = "ln_f.bias"
"answer.weight" = "lm_head.weight"
""" + "".join(
    f'"stack.{{layer}}.{theirs}.{kind}" = "h.{{layer}}.{ours}.{kind}"\n'
    for theirs, ours in {
        "before_attention": "ln_1",
        "asks": "attn.q",
        "keys": "attn.k",
        "says": "attn.v",
        "mixes": "attn.c_proj",
        "before_network": "ln_2",
        "wide": "mlp.c_fc",
        "narrow": "mlp.c_proj",
    }.items()
    for kind in ("weight", "bias")
)
CONFIG = """
n_head = 4
context_length = 160
position = "learned"
norm_order = "pre"
norm_eps = 1e-5
activation = "gelu"
attention_scale = "head_size"
embedding_scale = 1.0
"""


def _tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def mine(activation: Any = F.gelu, *, last_only: bool = False) -> Mine:
    """A module whose every weight matters."""
    torch.manual_seed(3)
    module = Mine(activation, last_only=last_only).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            scale = 0.4 if "asks" in name or "keys" in name else 0.2
            parameter.add_(scale * torch.randn(parameter.shape))
    return module


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
        f"import runpy\nbuild = runpy.run_path({__file__!r}, run_name='helper')['mine']\n"
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
    with pytest.raises(CheckpointError, match=r"Mine: .* not named: seen \[160, 160\]"):
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
