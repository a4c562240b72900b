"""A plan of an export: its numbers against the export itself, and what it says of the source."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, ConfigError, ExportError, InputError
from gpt_onnx.export import ExportPlan, export_bundle, plan_export
from gpt_onnx.export.build import write_graphs
from gpt_onnx.export.footprint import logits_bytes
from gpt_onnx.export.gpt_source import GptSource
from gpt_onnx.export.options import ExportOptions, options_of
from gpt_onnx.export.source import resolve
from gpt_onnx.model import GPT

SHIPPED = Path(__file__).parents[2] / "models" / "sotu"
DATA = "onnx/model.onnx_data"
TINY: dict[str, Any] = {"vocab_size": 97, "context_length": 64, "n_embd": 48, "n_layer": 2, "n_head": 4}


@pytest.fixture(scope="module")
def shipped() -> ExportPlan:
    return plan_export(SHIPPED)


def test_what_was_recognised_is_said(shipped: ExportPlan) -> None:
    assert (shipped.name, shipped.kind, shipped.parameters) == ("sotu", "gpt-onnx checkpoint", 5783040)
    assert shipped.tokenizer
    assert not shipped.chat_template
    assert shipped.told_config == {
        "vocab_size": 4096,
        "context_length": 512,
        "n_embd": 256,
        "n_layer": 6,
        "n_head": 4,
        "embedding_scale": "sqrt",
    }


def test_what_follows_from_other_fields_is_not_repeated() -> None:
    changes = {"n_embd": 45, "n_head": 4, "head_size": 9, "position": "learned", "bias": False}
    told = plan_export(GPT(GPTConfig.from_dict(TINY | changes))).told_config
    sizes = {"vocab_size": 97, "context_length": 64, "n_layer": 2}
    assert told == sizes | changes


def test_the_plan_is_json(shipped: ExportPlan) -> None:
    told = json.loads(json.dumps(shipped.to_json()))
    assert told["config"]["d_ff"] == 1024
    assert [line["precision"] for line in told["precisions"]] == ["fp32", "fp16", "int8", "int4"]


def stored_in(folder: Path) -> int:
    """Bytes of the file of weights, and of the weights in the graph, which have names of the model's."""
    model = onnx.load(folder / "onnx" / "model.onnx", load_external_data=False)
    inline = [tensor for tensor in model.graph.initializer if tensor.name.endswith((".weight", ".bias"))]
    inline = [tensor for tensor in inline if tensor.data_location != onnx.TensorProto.EXTERNAL]
    return (folder / DATA).stat().st_size + sum(onnx.numpy_helper.to_array(part).nbytes for part in inline)


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("changes", [{}, {"n_kv_head": 2, "tie_embeddings": False}, {"position": "learned"}])
def test_the_weights_and_the_cache_are_as_planned(
    tmp_path: Path, target: str, changes: dict[str, Any]
) -> None:
    gpt = GPT(GPTConfig.from_dict(TINY | changes)).eval()
    plan = plan_export(gpt, target=target)
    report = export_bundle(gpt, tmp_path / "b", target=target, check="none")
    assert plan.precisions[0].weights_bytes == stored_in(tmp_path / "b")
    info = report.manifest.model
    numbers = 2 * info.n_layer * info.n_kv_head * info.cache_head_size
    assert plan.precisions[0].cache_bytes_per_token == 4 * numbers
    assert plan.precisions[0].cache_bytes_at_context == 4 * numbers * 64
    assert plan.parameters == info.parameters


def test_large_weights_are_planned_with_their_padding(tmp_path: Path) -> None:
    export_bundle(SHIPPED, tmp_path / "b", check="none")
    assert plan_export(SHIPPED).precisions[0].weights_bytes == stored_in(tmp_path / "b")


@pytest.mark.parametrize("target", ["cpu", "portable"])
@pytest.mark.parametrize("changes", [{}, {"n_kv_head": 2, "tie_embeddings": False}, {"position": "learned"}])
@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_integer_weights_are_as_planned(
    tmp_path: Path, target: str, changes: dict[str, Any], precision: str
) -> None:
    gpt = GPT(GPTConfig.from_dict(TINY | changes)).eval()
    asked: dict[str, Any] = {"target": target, "precision": precision, "quantizer": "rtn"}
    planned = {line.precision: line.weights_bytes for line in plan_export(gpt, **asked).precisions}
    source, options = GptSource.of_model(gpt), ExportOptions(**asked)
    written = write_graphs(source, options, tmp_path, None, lambda step, done, total: None)
    assert written.payload_bytes <= planned[precision] <= 1.01 * written.payload_bytes


@pytest.mark.parametrize("target", ["portable", "web"])
def test_half_precision_is_as_planned(tmp_path: Path, target: str) -> None:
    gpt = GPT(GPTConfig.from_dict(TINY | {"position": "learned", "tie_embeddings": False})).eval()
    asked: dict[str, Any] = {"target": target, "precision": "fp16"}
    planned = {line.precision: line.weights_bytes for line in plan_export(gpt, **asked).precisions}
    source, options = GptSource.of_model(gpt), ExportOptions(**asked)
    written = write_graphs(source, options, tmp_path, None, lambda *told: None)
    assert written.payload_bytes <= planned["fp16"] <= 1.01 * written.payload_bytes


def test_half_precision_is_an_estimate_of_two_bytes_a_weight_where_a_target_has_it_not() -> None:
    plan = plan_export(GPT(GPTConfig.from_dict(TINY)).eval())
    lines = {line.precision: line for line in plan.precisions}
    assert [name for name, line in lines.items() if not line.written] == ["fp16"]
    assert lines["fp16"].weights_bytes == pytest.approx(2 * plan.parameters, rel=0.05)
    assert 2 * (lines["fp16"].cache_bytes_per_token or 0) == lines["fp32"].cache_bytes_per_token


def test_a_precision_that_no_block_fits_is_not_planned() -> None:
    gpt = GPT(GPTConfig.from_dict(TINY | {"n_embd": 40, "d_ff": 40})).eval()
    assert [line.precision for line in plan_export(gpt).precisions] == ["fp32", "fp16"]
    with pytest.raises(ConfigError, match=r"\.weight has 40 inputs"):
        plan_export(gpt, precision="int4")


def test_a_module_of_ones_own_has_no_cache(tmp_path: Path) -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(50, 64), nn.Linear(64, 50)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.table(ids)
            logits: torch.Tensor = self.out(x + x.cumsum(1))
            return logits

    torch.manual_seed(0)
    module = Mine().eval()
    plan = plan_export(module)
    assert (plan.kind, plan.layout, plan.config) == ("torch.nn.Module (Mine)", "plain", None)
    assert plan.parameters == 50 * 64 * 2 + 50
    assert plan.precisions[0].cache_bytes_per_token is None
    report = export_bundle(module, tmp_path / "b", check="none")
    assert plan.precisions[0].weights_bytes == report.payload_bytes


class Masked(nn.Module):
    """A transformer as people write it: a mask in each layer, and things that its forward does not use."""

    def __init__(
        self, context: int = 256, width: int = 64, *, persistent: bool = True, tied: bool = True
    ) -> None:
        super().__init__()
        self.context_length = context
        self.wte, self.wpe = nn.Embedding(300, width), nn.Embedding(context, width)
        self.attn = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.head = nn.Linear(width, 300, bias=False)
        if tied:
            self.head.weight = self.wte.weight
        for index in range(2):
            self.register_buffer(f"mask{index}", torch.ones(context, context).tril(), persistent=persistent)
        self.register_buffer("forgotten", torch.randn(context, context), persistent=persistent)
        self.unused = nn.Linear(width, 9 * width)
        self.scale = torch.randn(context, width)  # neither a parameter nor a buffer

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        x = self.wte(ids) + self.wpe(torch.arange(length)) * self.scale[:length]
        for index, layer in enumerate(self.attn):
            q, k, v = layer(x).chunk(3, dim=-1)
            mask = self.get_buffer(f"mask{index}")[:length, :length] == 0
            scores = (q @ k.transpose(1, 2) / 8).masked_fill(mask, -1e4)
            x = x + scores.softmax(-1) @ v
        logits: torch.Tensor = self.head(x)
        return logits


MODULES: dict[str, Callable[[], nn.Module]] = {
    "masks": Masked,
    "masks that are not stored": lambda: Masked(persistent=False, tied=False),
    "small": lambda: Masked(32, 8),
    "tiny": lambda: Masked(16, 4),
}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": "portable", "precision": "fp16"},
        {"target": "portable", "precision": "int8", "block_size": 16},
        {"seq_len": 16},
    ],
)
def test_a_modules_weights_and_tables_are_as_planned(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    if kind in ("small", "tiny") and "block_size" in options:
        pytest.skip("no block divides it")
    torch.manual_seed(0)
    module = MODULES[kind]().eval()
    plan = plan_export(module, **options)
    planned = {line.precision: line.weights_bytes for line in plan.precisions}
    chosen = options_of(options)
    written = write_graphs(resolve(module, chosen), chosen, tmp_path, None, lambda *told: None)
    assert planned[chosen.precision] == pytest.approx(written.payload_bytes, rel=0.01)
    assert [tensor for tensor in tmp_path.rglob("*") if tensor.name == "model.onnx_data"]


def test_integers_of_a_module_are_planned_as_the_trace_allows() -> None:
    plan = plan_export(Masked().eval(), precision="int8")
    assert plan.integers is not None
    assert (plan.integers.block_size, plan.integers.quantizer) == (64, "rtn")
    assert [line.precision for line in plan.precisions] == ["fp32", "fp16", "int8"]
    assert not any("--precision int8" in note for note in plan.notes)
    with pytest.raises(ConfigError, match="which blocks of"):
        plan_export(Masked(32, 8).eval(), precision="int8")


def test_where_a_trace_alone_tells_the_size_of_integers_a_note_says_so(shipped: ExportPlan) -> None:
    assert any(
        "a dry run with --precision int8 or int4" in note for note in plan_export(Masked().eval()).notes
    )
    assert not any("a dry run with" in note for note in shipped.notes)


def test_a_module_that_cannot_be_traced_is_told_by_a_plan() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 50)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.table(ids)
            return logits * 2 if ids.sum() > 3 else logits

    with pytest.raises(ExportError, match=r"could not be traced: .*torch\.where"):
        plan_export(Branching().eval())


def test_what_will_not_be_compared_is_noted(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=4, bos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "hf")
    plan = plan_export(tmp_path / "hf")
    assert plan.kind == "Hugging Face folder (gpt2)"
    assert "--reference FILE does so" in plan.notes[-1]
    assert "--check none" in plan_export(tmp_path / "hf", check="none").notes[-1]
    assert not any("compared" in note for note in plan_export(SHIPPED).notes)
    assert plan.generation["bos_token_id"] == 0


def test_a_plan_refuses_what_the_export_would(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        plan_export(tmp_path / "absent")
    with pytest.raises(InputError, match="the reference file"):
        plan_export(SHIPPED, reference=tmp_path / "absent.npz")
    with pytest.raises(InputError, match="tells its own configuration"):
        plan_export(SHIPPED, names=tmp_path / "names.toml")
    with pytest.raises(ExportError, match="freeze at most 64"):
        plan_export(GPT(GPTConfig.from_dict(TINY | {"position": "learned"})), seq_len=65)
    short = tmp_path / "short.txt"
    short.write_text("few words, and the same again. " * 3000)
    with pytest.raises(ConfigError, match="calibration with it needs at least 28,673 tokens"):
        plan_export(SHIPPED, precision="int4", calibration=short)


def test_that_exact_products_are_slow_is_noted() -> None:
    for precision, slow in (("int8", "slower than fp32"), ("int4", "a third of the speed")):
        assert slow in plan_export(SHIPPED, precision=precision, accuracy_level=0).notes[0]
        assert not plan_export(SHIPPED, precision=precision).notes


PEAK = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "gpt_onnx", "export", *sys.argv[1:]], capture_output=True)
assert done.returncode == 0, done.stderr
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of the peak memory is another one elsewhere")
def test_the_memory_of_an_export_is_as_planned(tmp_path: Path) -> None:
    config = GPTConfig(vocab_size=60000, context_length=64, n_embd=512, n_layer=1, n_head=8)
    write_checkpoint(tmp_path / "wide", config, GPT(config).state_dict())
    out = ["-o", str(tmp_path / "bundle"), "--check", "none"]
    command = [sys.executable, "-c", PEAK, str(tmp_path / "wide"), *out]
    peak = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    planned = plan_export(tmp_path / "wide").peak_bytes
    assert 1 / 1.6 < planned / peak < 1.6
    assert math.prod((60000, 512)) * 4 < peak  # the embedding is what takes the memory here


def test_the_memory_of_the_gate_grows_with_its_logits() -> None:
    """Three rows of the context and one; one and one where three are too many; as many tokens as can be."""
    assert logits_bytes(50_257, 1024, 124_000_000) == 4 * 4 * 1024 * 50_257
    assert logits_bytes(128_000, 2048, 10**9) == 4 * 2 * 2048 * 128_000
    assert logits_bytes(128_000, 131_072, 10**9) == 4 * 2 * 3000 * 128_000
    assert logits_bytes(10, None, 1) == 0
