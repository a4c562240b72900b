"""Small bundles for tests: real graphs with the names and dims of the contract, and weights of a few KB.

The graphs compute something simple (no attention): they have a form to check, not numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
        "model": ModelInfo(
            vocab_size=VOCAB,
            context_length=32,
            position="sinusoidal",
            position_limit=None,
            n_layer=LAYERS,
            n_kv_head=HEADS,
            head_size=HEAD_SIZE,
            cache_head_size=HEAD_SIZE,
            parameters=2 * VOCAB * WIDTH,
        ),
        "checked": True,
        "compared_with_original": False,
        "options": {"target": "portable", "seq_len": "dynamic"},
        "versions": {"torch": "2.13.0", "onnx": "1.20.0"},
        "source_sha256": "0" * 64,
    }
    return Manifest(**(values | changes))


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
        helper.make_node("Gather", ["wte", "input_ids"], ["hidden"], name="embed"),
        helper.make_node("MatMul", ["hidden", "lm_head"], ["logits"], name="head"),
    ]
    weights: list[tuple[str, np.ndarray, int | None]] = [("wte", embedding, 0), ("lm_head", head, 4096)]
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
