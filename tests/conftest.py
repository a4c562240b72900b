"""Small bundles for tests.

make_bundle      a toy graph with the names and dims of the contract: it has a form to check, not numbers
tiny_bundle      a real GPT of a few KB, exported, beside its eager model in float64

"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from gpt_onnx.bundle import GraphInfo, Manifest, ModelInfo, seal

VOCAB, HEADS, HEAD_SIZE, LAYERS, FROZEN = 11, 2, 8, 2, 16
WIDTH = HEADS * HEAD_SIZE
B, S, P = "batch_size", "sequence_length", "past_sequence_length"
TOTAL = f"{P} + {S}"
DATA = "model.onnx_data"
GRAPHS = {
    "dynamic": {"model": "onnx/model.onnx"},
    "static": {"prefill": "onnx/prefill.onnx", "decode": "onnx/decode.onnx"},
    "plain": {"model": "onnx/model.onnx"},
}
ManifestMaker = Callable[..., Manifest]
BundleMaker = Callable[..., Path]
ModelMaker = Callable[..., Any]


USUAL: Mapping[str, Any] = {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}
"""What a signal does that a shell in the background, or nohup, has had ignored."""


def pytest_configure() -> None:
    """Let processes of tests be ended by signals, whatever started pytest without them."""
    for name, usual in USUAL.items():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


def toy_sizes(attention: str) -> ModelInfo:
    """The sizes of ``toy_model``; of layers that are not known there are none."""
    known = attention != "traced"
    return ModelInfo(
        vocab_size=VOCAB,
        context_length=32,
        position="sinusoidal" if known else "unknown",
        position_limit=None,
        n_layer=LAYERS * known,
        n_kv_head=HEADS * known,
        head_size=HEAD_SIZE * known,
        cache_head_size=HEAD_SIZE * known,
        parameters=2 * VOCAB * WIDTH,
    )


def options_for(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What an exporter was asked for that made such a bundle."""
    graph = manifest["graph"]
    return {
        "target": manifest["target"],
        "seq_len": graph.seq_len or "dynamic",
        "batch_size": graph.batch_size or "dynamic",
        "kv_cache": graph.layout != "plain",
        "check": "standard" if manifest["checked"] else "none",
    }


def toy_manifest(layout: str = "dynamic", attention: str = "decomposed", **changes: Any) -> Manifest:
    """A manifest that fits ``toy_model``."""
    values: dict[str, Any] = {
        "name": "toy",
        "target": "cpu" if attention == "gqa" else "portable",
        "precision": "fp32",
        "graph": GraphInfo(
            layout=layout,
            graphs=GRAPHS[layout],
            data=f"onnx/{DATA}",
            attention=attention,
            opset=21,
            ir_version=10,
            seq_len=FROZEN if layout == "static" else None,
            batch_size=1 if layout == "static" else None,
        ),
        "model": toy_sizes(attention),
        "checked": False,
        "compared_with_original": False,
        "versions": {"torch": "2.13.0", "onnx": "1.20.0"},
        "source_sha256": "0" * 64,
    }
    values |= changes
    return Manifest(**({"options": options_for(values)} | values))


def _lengths(role: str) -> tuple[Any, Any, Any, Any]:
    """Batch, new tokens, past and total: None for no past."""
    table: Mapping[str, tuple[Any, Any, Any, Any]] = {
        "model": (B, S, P, TOTAL),
        "plain": (B, S, None, S),
        "prefill": (1, FROZEN, None, FROZEN),
        "decode": (1, 1, FROZEN, FROZEN),
    }
    return table[role]


def _ports(role: str) -> tuple[list[Any], list[Any]]:
    from onnx import TensorProto, helper

    def port(name: str, kind: int, *dims: Any) -> Any:
        return helper.make_tensor_value_info(name, kind, list(dims))

    def cache(prefix: str, length: Any) -> list[Any]:
        names = [f"{prefix}.{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]
        return [port(name, TensorProto.FLOAT, batch, HEADS, length, HEAD_SIZE) for name in names]

    batch, new, past, total = _lengths(role)
    logits = port("logits", TensorProto.FLOAT, batch, new, VOCAB)
    ids = [port("input_ids", TensorProto.INT64, batch, new)]
    if role == "plain":
        return ids, [logits]
    ids += [port("attention_mask", TensorProto.INT64, batch, total)]
    ids += [port("position_ids", TensorProto.INT64, batch, new)]
    ids += [port("num_logits_to_keep", TensorProto.INT64, 1)] if role == "model" else []
    return ids + (cache("past_key_values", past) if past else []), [logits, *cache("present", total)]


def _cache_nodes(role: str, attention: str) -> list[Any]:
    from onnx import helper

    if attention == "gqa":
        return [
            helper.make_node(
                "GroupQueryAttention",
                ["hidden", "", "", *([f"past_key_values.{i}.{part}" for part in ("key", "value")])],
                [f"attention.{i}", f"present.{i}.key", f"present.{i}.value"],
                domain="com.microsoft",
                num_heads=HEADS,
                kv_num_heads=HEADS,
            )
            for i in range(LAYERS)
        ]
    nodes = [
        helper.make_node("Reshape", ["hidden", "heads_shape"], ["split"], name="split"),
        helper.make_node("Transpose", ["split"], ["heads"], name="heads", perm=[0, 2, 1, 3]),
    ]
    for name in [f"{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]:
        past = f"past_key_values.{name}"
        if role == "model":
            nodes.append(helper.make_node("Concat", [past, "heads"], [f"present.{name}"], axis=2))
        else:
            nodes.append(
                helper.make_node("Identity", ["heads" if role == "prefill" else past], [f"present.{name}"])
            )
    return nodes


def _initializers(weights: Sequence[tuple[str, np.ndarray, int | None]]) -> list[Any]:
    """(name, values, offset in the data file or None for inline) as tensors."""
    from onnx import TensorProto, numpy_helper

    tensors = []
    for name, values, offset in weights:
        tensor = numpy_helper.from_array(values, name)
        if offset is not None:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", DATA), ("offset", offset), ("length", values.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
    return tensors


def toy_weights() -> tuple[np.ndarray, np.ndarray]:
    """Embedding (V, E) and head (E, V)."""
    generator = np.random.default_rng(0)
    return (
        generator.standard_normal((VOCAB, WIDTH), dtype=np.float32),
        generator.standard_normal((WIDTH, VOCAB), dtype=np.float32),
    )


def toy_data() -> bytes:
    """The data file: the embedding, zeros up to a multiple of 4096, the head."""
    embedding, head = toy_weights()
    return embedding.tobytes().ljust(4096, b"\0") + head.tobytes()


def toy_model(role: str = "model", attention: str = "decomposed") -> Any:
    """The ONNX model of a role: "model", "prefill", "decode" or "plain"."""
    from onnx import helper

    embedding, head = toy_weights()
    inputs, outputs = _ports(role)
    nodes = [
        helper.make_node("Gather", ["wte.weight", "input_ids"], ["hidden"], name="embed"),
        helper.make_node("MatMul", ["hidden", "lm_head.weight"], ["logits"], name="head"),
    ]
    weights: list[tuple[str, np.ndarray, int | None]] = [
        ("wte.weight", embedding, 0),
        ("lm_head.weight", head, 4096),
    ]
    if role != "plain":
        nodes += _cache_nodes(role, attention)
        weights.append(("heads_shape", np.array([0, 0, HEADS, HEAD_SIZE], np.int64), None))
    if role == "model":
        weights.append(("num_logits_to_keep", np.array([0], np.int64), None))
    graph = helper.make_graph(nodes, "toy", inputs, outputs, _initializers(weights))
    opsets = [helper.make_opsetid("", 21)] + [helper.make_opsetid("com.microsoft", 1)] * (attention == "gqa")
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write_toy(folder: Path, manifest: Manifest, models: Mapping[str, Any], data: bytes) -> Path:
    """Write a sealed bundle of role -> model."""
    (folder / "onnx").mkdir(parents=True)
    for role, model in models.items():
        (folder / manifest.graph.graphs[role]).write_bytes(model.SerializeToString())
    if manifest.graph.data is not None:
        (folder / manifest.graph.data).write_bytes(data)
    (folder / "config.json").write_text('{"model_type": "gpt2"}\n')
    (folder / "tokenizer.json").write_text("{}\n")
    seal(folder, manifest)
    return folder


@pytest.fixture(scope="session")
def make_manifest() -> ManifestMaker:
    """Makes a manifest: layout, attention, and any field to change."""
    return toy_manifest


@pytest.fixture(scope="session")
def make_model() -> ModelMaker:
    """Makes an ONNX model: role and attention."""
    return toy_model


@pytest.fixture
def make_bundle(tmp_path: Path) -> BundleMaker:
    """Makes a sealed bundle: a folder name, a layout, an attention form, and what to do to each model."""

    def make(
        name: str = "toy",
        layout: str = "dynamic",
        attention: str = "decomposed",
        *,
        edit: Callable[[Any], object] = lambda model: None,
        data: bytes | None = None,
        **changes: Any,
    ) -> Path:
        manifest = toy_manifest(layout, attention, **changes)
        roles = manifest.graph.graphs
        models = {role: toy_model("plain" if layout == "plain" else role, attention) for role in roles}
        for model in models.values():
            edit(model)
        return write_toy(tmp_path / name, manifest, models, toy_data() if data is None else data)

    return make


TINY = {"vocab_size": 97, "context_length": 64, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_kv_head": 2}
"""Heads of 12, which GroupQueryAttention's cache pads to 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyBundle:
    """An exported GPT with random weights."""

    path: Path
    gpt: Any
    """The eager model (gpt_onnx.model.GPT) in float64."""

    def logits(self, ids: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The eager model's logits of one sequence, (S, V) in float64."""
        import torch

        with torch.no_grad():
            return np.asarray(self.gpt(torch.tensor([list(ids)]))[0][0].numpy())

    def cache(self, ids: Sequence[int]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The eager model's keys and values of one sequence, each (K, S, D) in float64, by layer."""
        import torch

        with torch.no_grad():
            present = self.gpt(torch.tensor([list(ids)]))[1]
        return [(keys[0].numpy(), values[0].numpy()) for keys, values in present]


class TinyMaker(Protocol):
    """Exports a tiny GPT; equal arguments give the same bundle, which no test may change."""

    def __call__(
        self, target: str = "cpu", *, config: Mapping[str, Any] = {}, seed: int = 0, **options: Any
    ) -> TinyBundle:
        """``config``: fields of GPTConfig to change; ``options``: fields of ExportOptions."""
        ...


def export_tiny(folder: Path, config: Mapping[str, Any], seed: int, options: Mapping[str, Any]) -> TinyBundle:
    """Make a GPT that tells tokens apart and does not repeat itself at once, and export it."""
    import torch

    from gpt_onnx.config import GPTConfig
    from gpt_onnx.export import export_bundle
    from gpt_onnx.model import GPT

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        gpt = GPT(GPTConfig.from_dict({**TINY, **config})).eval()
        with torch.no_grad():
            for parameter in gpt.parameters():
                parameter.add_(0.08 * torch.randn_like(parameter))
            assert gpt.ln_f is not None
            gpt.ln_f.weight.copy_(torch.randn_like(gpt.ln_f.weight))
    export_bundle(gpt, folder, **options)
    return TinyBundle(path=folder, gpt=gpt.double())


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> TinyMaker:
    """Makes a tiny GPT's bundle: a target, the configuration and the options of the export."""
    made: dict[str, TinyBundle] = {}

    def make(
        target: str = "cpu", *, config: Mapping[str, Any] = {}, seed: int = 0, **options: Any
    ) -> TinyBundle:
        chosen = {"check": "none", "target": target, **options}
        key = repr((sorted(config.items()), seed, sorted(chosen.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp("tiny") / "bundle"
            made[key] = export_tiny(folder, config, seed, chosen)
        return made[key]

    return make


LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "gqa": {},
    "decomposed": {"target": "portable"},
    "gqa-batch-3": {"batch_size": 3},
    "decomposed-batch-3": {"target": "portable", "batch_size": 3},
    "static-gqa": {"seq_len": 32, "batch_size": 3},
    "static-decomposed": {"target": "portable", "seq_len": 32, "batch_size": "dynamic"},
    "plain": {"kv_cache": False},
    "plain-frozen": {"kv_cache": False, "seq_len": 32, "batch_size": "dynamic"},
}
"""Export options that give each layout of graphs, attention form and kind of frozen dim."""


@pytest.fixture(scope="session", params=LAYOUTS)
def any_layout(request: pytest.FixtureRequest, tiny_bundle: TinyMaker) -> TinyBundle:
    """A tiny GPT in each layout in turn."""
    return tiny_bundle(**LAYOUTS[request.param])
