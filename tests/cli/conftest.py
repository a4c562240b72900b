"""A real bundle whose model knows one text by heart.

The graph is a table of which token follows which, so that every answer is known: after "a" comes "b", at
the end of the text it begins again, and after "~" comes end-of-text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpt_onnx.bundle import GraphInfo, Manifest, ModelInfo, seal

TINY = {"vocab_size": 61, "context_length": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
TEXT = "abcdefgh 😀日.\n"  # no byte twice
ALPHABET = pre_tokenizers.ByteLevel.alphabet()
LACKING = 5  # ids of the model that the tokenizer lacks


def tokenizer() -> RustTokenizer:
    rust = RustTokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=257, special_tokens=["<|endoftext|>"], initial_alphabet=ALPHABET, show_progress=False
    )
    rust.train_from_iterator([], trainer)
    return rust


def follows() -> dict[int, int]:
    rust = tokenizer()
    ids = rust.encode(TEXT).ids
    pairs = dict(zip(ids, [*ids[1:], ids[0]], strict=True))
    [tilde] = rust.encode("~").ids
    return {tilde: 0, 0: ids[0], **pairs}


def table(vocab_size: int) -> np.ndarray:
    """Logits (V, V) of what follows each token; ids that the tokenizer lacks are the most probable of all."""
    logits = np.zeros((vocab_size, vocab_size), np.float32)
    for token, following in follows().items():
        logits[token, following] = 20
    logits[:, vocab_size - LACKING :] = 50
    return logits


def write_model(folder: Path, logits: np.ndarray) -> None:
    from onnx import TensorProto, helper, numpy_helper

    dims = ["batch_size", "sequence_length"]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, dims)
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*dims, len(logits)])
    node = helper.make_node("Gather", ["table", "input_ids"], ["logits"], name="follow")
    graph = helper.make_graph([node], "bigram", [ids], [out], [numpy_helper.from_array(logits, "table")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(model.SerializeToString())


def describe(limit: int | None, trained: int | None) -> Manifest:
    graph = GraphInfo(
        layout="plain",
        graphs={"model": "onnx/model.onnx"},
        data=None,
        attention="traced",
        opset=21,
        ir_version=10,
        seq_len=None,
        batch_size=None,
    )
    model = ModelInfo(
        vocab_size=257 + LACKING,
        context_length=limit or trained,
        position="unknown",
        position_limit=limit,
        n_layer=0,
        n_kv_head=0,
        head_size=0,
        cache_head_size=0,
        parameters=(257 + LACKING) ** 2,
    )
    return Manifest(
        name="bigram",
        target="portable",
        precision="fp32",
        graph=graph,
        model=model,
        checked=False,
        compared_with_original=False,
        options={
            "target": "portable",
            "seq_len": "dynamic",
            "batch_size": "dynamic",
            "kv_cache": False,
            "check": "none",
        },
        versions={},
        source_sha256="0" * 64,
    )


def make_bundle(
    folder: Path,
    *,
    text: bool = True,
    limit: int | None = None,
    trained: int | None = None,
    edit: tuple[str, str] | None = None,
    **generation: Any,
) -> Path:
    write_model(folder, table(257 + LACKING))
    (folder / "config.json").write_text("{}")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0} | generation))
    if text:
        written = tokenizer().to_str().replace(*edit) if edit else tokenizer().to_str()
        (folder / "tokenizer.json").write_text(written, encoding="utf-8")
    seal(folder, describe(limit, trained))
    return folder


@pytest.fixture(scope="session")
def make_bigram(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a bundle: ``text`` (has a tokenizer), ``limit``, ``trained``, ``edit`` (a replacement in
    tokenizer.json), and keys of generation_config.json."""
    return lambda **options: make_bundle(tmp_path_factory.mktemp("bigram") / "bundle", **options)


@pytest.fixture(scope="session")
def bigram(make_bigram: Callable[..., Path]) -> Path:
    """A bundle of that model."""
    return make_bigram()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of our own on the disk, with random weights."""
    import torch

    from gpt_onnx.checkpoint import write_checkpoint
    from gpt_onnx.config import GPTConfig
    from gpt_onnx.model import GPT

    torch.manual_seed(0)
    config, path = GPTConfig.from_dict(TINY), tmp_path_factory.mktemp("source") / "tiny"
    write_checkpoint(path, config, GPT(config).state_dict())
    return path
