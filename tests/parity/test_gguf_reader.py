"""GGUF files against transformers: its models, written as llama.cpp's converter writes them, read back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.originals.gguf_files import (
    CONTEXT,
    TYPES,
    VOCAB,
    gpt2,
    llama,
    put,
    qwen2,
    write,
)


def ids_of(length: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, VOCAB, (1, length)))


def ratio(found: np.ndarray, model: Any, ids: torch.Tensor) -> float:
    """The error of logits in units of what float32 costs transformers: 4 is the most that may be."""
    with torch.no_grad():
        r32 = model.float()(ids).logits[0].double().numpy()
        r64 = copy.deepcopy(model).double()(ids).logits[0].numpy()
    unit = max(np.abs(r32 - r64).max(), 8 * 2**-24 * np.abs(r64).max())
    return float(np.abs(found - r64).max() / unit)


def read_logits(path: Path, ids: torch.Tensor) -> np.ndarray:
    """Logits of our GPT in float32, as read from a file."""
    with torch.no_grad():
        logits, _ = load_model(read_checkpoint(path))(ids)
    return np.asarray(logits[0].double().numpy())


MODELS: Mapping[str, Callable[[], Any]] = {
    "gpt2": gpt2,
    "llama": llama,
    "llama, tied": lambda: llama(tie_word_embeddings=True),
    "llama, biases": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama, theta": lambda: llama(rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    "qwen2": qwen2,
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_each_family_compute_what_transformers_does(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    write(tmp_path / "model.gguf", model)
    ids = ids_of(CONTEXT)
    assert ratio(read_logits(tmp_path / "model.gguf", ids), model, ids) <= 4


def test_the_configuration_is_that_of_the_original(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", llama(rms_norm_eps=1e-5))
    config = read_checkpoint(tmp_path / "model.gguf").config
    assert (config.norm_eps, config.rope_theta, config.rope_style) == (1e-5, 10000.0, "half")
    assert (config.norm, config.activation, config.n_kv_head) == ("rmsnorm", "swiglu", 2)
    assert not config.tie_embeddings


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_weights_are_what_they_stand_for(kind: str, tmp_path: Path) -> None:
    model = llama()
    stands = write(
        tmp_path / "model.gguf", model, lambda _, array: TYPES[kind] if array.ndim > 1 else TYPES.F32
    )
    checkpoint = read_checkpoint(tmp_path / "model.gguf")
    changed = put(model, stands)
    ours = load_model(checkpoint).state_dict()
    theirs = dict(changed.named_parameters())
    packed = [theirs[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(ours["h.1.attn.c_attn.weight"], torch.cat(packed).data)
    assert torch.equal(ours["h.0.mlp.c_fc.weight"], theirs["model.layers.0.mlp.up_proj.weight"].data)
    assert torch.equal(ours["lm_head.weight"], theirs["lm_head.weight"].data)
    ids = ids_of(24)
    assert ratio(read_logits(tmp_path / "model.gguf", ids), changed, ids) <= 4


def test_a_quantised_gpt2_is_what_it_stands_for(tmp_path: Path) -> None:
    model = gpt2()
    stands = write(
        tmp_path / "model.gguf", model, lambda _, array: TYPES.Q8_0 if array.ndim > 1 else TYPES.F32
    )
    ids = ids_of(CONTEXT)
    assert ratio(read_logits(tmp_path / "model.gguf", ids), put(model, stands), ids) <= 4
    assert "quantised (Q8_0)" in read_checkpoint(tmp_path / "model.gguf").notes[-1]


def test_q6_k_is_what_its_blocks_say(tmp_path: Path) -> None:
    """Six bits of a number lie in three places of a block; worked out from the format, element by element."""
    rng = np.random.default_rng(3)
    blocks = rng.integers(0, 256, (VOCAB, 210), dtype=np.uint8)
    blocks[:, 208:] = np.full((VOCAB, 1), 0.01, np.float16).view(np.uint8)
    low, high, scales = blocks[:, :128], blocks[:, 128:192], blocks[:, 192:208].view(np.int8)
    expected = np.zeros((VOCAB, 256), np.float32)
    for element in range(256):
        half, place = divmod(element, 128)
        quarter, column = divmod(place, 32)
        nibble = low[:, 64 * half + 32 * (quarter % 2) + column] >> (4 * (quarter // 2)) & 15
        bits = high[:, 32 * half + column] >> (2 * quarter) & 3
        six = (nibble | bits << 4).astype(np.int8) - 32
        expected[:, element] = np.float32(np.float16(0.01)) * scales[:, element // 16] * six
    model = llama(hidden_size=256, intermediate_size=32, num_hidden_layers=1)
    path = tmp_path / "model.gguf"
    write(path, model)
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        if tensor.name == "output.weight":
            writer.add_tensor(tensor.name, blocks, raw_dtype=TYPES.Q6_K)
        else:
            writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_checkpoint(tmp_path / "other.gguf").numpy("lm_head.weight")
    assert np.allclose(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen2"])
def test_transformers_reads_the_same_from_a_file(name: str, tmp_path: Path) -> None:
    """Its own reader of GGUF knows what llama.cpp's converter exchanges and transposes."""
    theirs = pytest.importorskip("transformers.modeling_gguf_pytorch_utils")
    path, model = tmp_path / "model.gguf", MODELS[name]()
    write(path, model, lambda _, array: TYPES.Q8_0 if array.ndim > 1 else TYPES.F32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    loaded = theirs.load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    found = model.load_state_dict(loaded["tensors"], strict=False)
    assert not found.unexpected_keys
    assert set(found.missing_keys) <= {"lm_head.weight"}
    ids = ids_of(CONTEXT)
    assert ratio(read_logits(path, ids), model, ids) <= 4


LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}


def llama3_factors(size: int = 16) -> np.ndarray:
    """rope_freqs.weight as the converter computes it, frequency by frequency."""
    factors = []
    for frequency in 10000.0 ** (-np.arange(0, size, 2) / size):
        length = 2 * np.pi / frequency
        smooth = (1024 / length - 1) / 3
        between = 1 / ((1 - smooth) / 8 + smooth)
        factors.append(1.0 if length < 1024 / 4 else 8.0 if length > 1024 else between)
    return np.array(factors, np.float32)


def test_llama3_scaling_is_known_by_its_factors(tmp_path: Path) -> None:
    model = llama(rope_parameters=LLAMA3)
    write(tmp_path / "model.gguf", model, extra={"rope_freqs.weight": llama3_factors()})
    scaling = read_checkpoint(tmp_path / "model.gguf").config.rope_scaling
    assert scaling is not None
    assert (scaling.kind, scaling.factor, scaling.original_context_length) == ("llama3", 8.0, 1024)
    ids = ids_of(CONTEXT)
    assert ratio(read_logits(tmp_path / "model.gguf", ids), model, ids) <= 4


def test_linear_scaling_is_read(tmp_path: Path) -> None:
    def change(writer: Any) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    model = llama(rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0})
    write(tmp_path / "model.gguf", model, change=change)
    ids = ids_of(CONTEXT)
    assert ratio(read_logits(tmp_path / "model.gguf", ids), model, ids) <= 4


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """The most likely tokens, one after another, in float64."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    return ids[0, len(prompt) :].tolist()


def test_a_bundle_of_a_file_gives_the_text_of_transformers(tmp_path: Path) -> None:
    model = llama(max_position_embeddings=160)
    write(tmp_path / "my-llama.gguf", model, lambda _, a: TYPES.F16 if a.ndim > 1 else TYPES.F32)
    stands = write(tmp_path / "again.gguf", model, lambda _, a: TYPES.F16 if a.ndim > 1 else TYPES.F32)
    report = export_bundle(tmp_path / "my-llama.gguf", tmp_path / "bundle", check="quick")
    assert report.manifest.name == "my-llama"
    engine = OnnxGPT.load(tmp_path / "bundle")
    changed = put(model, stands)
    ids = ids_of(48)
    (found,) = engine.logits([tuple(ids[0].tolist())])
    assert ratio(np.asarray(found, np.float64), changed, ids) <= 4
    prompt = ids[0, :5].tolist()
    expected = greedy(copy.deepcopy(changed).double(), prompt, 128)
    (generation,) = engine.generate([prompt], 128, Sampling(temperature=0))
    assert list(generation.ids) == expected
