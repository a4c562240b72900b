"""Checkpoints in other layouts: what transformers computes with them, bits that survive, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint import Checkpoint, load_model, read_checkpoint, write_checkpoint
from gpt_onnx.checkpoint.convert import convert_checkpoint
from gpt_onnx.checkpoint.safetensors import read_array, read_header
from gpt_onnx.checkpoint.writers import LAYOUTS, choose_layout
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, InputError

SIZES: dict[str, Any] = {"vocab_size": 61, "context_length": 32, "n_embd": 24, "n_layer": 2, "n_head": 4}
GPT2: dict[str, Any] = {**SIZES, "position": "learned", "activation": "gelu_tanh", "qkv_bias": True}
LLAMA: dict[str, Any] = {
    **SIZES,
    "n_kv_head": 2,
    "d_ff": 40,
    "position": "rotary",
    "norm": "rmsnorm",
    "activation": "swiglu",
    "bias": False,
    "tie_embeddings": False,
}
LLAMA3 = {
    "kind": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_context_length": 16,
}
GPT2_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"bias": False, "qkv_bias": False},
    "free head": {"tie_embeddings": False},
    "exact gelu": {"activation": "gelu"},
    "relu, wide, scaled by layer": {"activation": "relu", "d_ff": 30, "attention_scale_by_layer": True},
    "scores not scaled": {"attention_scale": 1.0, "norm_eps": 1e-4},
}
LLAMA_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied, all heads, theta": {"tie_embeddings": True, "n_kv_head": 4, "rope_theta": 500.0},
    "wide heads": {"head_size": 10},
    "biases of queries, keys and values": {"qkv_bias": True},
    "every bias": {"qkv_bias": True, "proj_bias": True, "mlp_bias": True},
    "linear scaling, geglu": {"rope_scaling": {"kind": "linear", "factor": 4.0}, "activation": "geglu"},
    "llama3 scaling": {"rope_scaling": LLAMA3, "activation": "geglu_tanh"},
}


def random_checkpoint(folder: Path, config: dict[str, Any], **options: Any) -> Path:
    """Write a checkpoint whose every weight is random and matters."""
    from gpt_onnx.model import GPT

    gpt = GPT(GPTConfig.from_dict(config))
    generator = torch.Generator().manual_seed(0)
    state = {
        name: torch.randn(tensor.shape, generator=generator) * 0.3
        for name, tensor in gpt.state_dict().items()
    }
    write_checkpoint(folder, gpt.config, state, **options)
    return folder


def our_logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = load_model(read_checkpoint(folder), torch.float64)(ids)[0]
    return logits


def their_logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    )
    with torch.no_grad():
        logits: torch.Tensor = model.eval()(ids).logits
    return logits


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    file = folder / "model.safetensors"
    return {name: read_array(file, info) for name, info in read_header(file).tensors.items()}


IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 32], [60, 0, *range(14)]])


def check_same_numbers(source: Path, folder: Path) -> None:
    ours, theirs = our_logits(source, IDS), their_logits(folder, IDS)
    assert ours.abs().max() > 0.1
    torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)  # their angles are float32


@pytest.mark.parametrize("variant", GPT2_VARIANTS)
def test_transformers_computes_the_same_with_a_gpt2_folder(tmp_path: Path, variant: str) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2 | GPT2_VARIANTS[variant])
    report = convert_checkpoint(source, tmp_path / "hf", to="huggingface")
    assert report.layout == "Hugging Face gpt2"
    ours, theirs = our_logits(source, IDS), their_logits(report.path, IDS)
    torch.testing.assert_close(theirs, ours, rtol=1e-10, atol=1e-10)
    check_same_numbers(report.path, report.path)


@pytest.mark.parametrize("variant", LLAMA_VARIANTS)
def test_transformers_computes_the_same_with_a_llama_folder(tmp_path: Path, variant: str) -> None:
    source = random_checkpoint(tmp_path / "ours", LLAMA | LLAMA_VARIANTS[variant])
    report = convert_checkpoint(source, tmp_path / "hf", to="huggingface")
    assert report.layout == "Hugging Face llama"
    check_same_numbers(source, report.path)
    check_same_numbers(report.path, report.path)


def test_biases_that_the_model_lacks_are_told(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2 | {"bias": False})
    [note] = convert_checkpoint(source, tmp_path / "hf", to="huggingface").notes
    assert "biases that the model lacks, h.0.ln_1.bias first" in note


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_there_and_back_no_bit_changes(tmp_path: Path, family: str) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model: Any
    if family == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(vocab_size=61, n_positions=32, n_embd=24, n_layer=2, n_head=4))
    else:
        sizes: dict[str, Any] = {
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "vocab_size": 61,
        }
        heads: dict[str, Any] = {
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32,
        }
        model = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
    model.save_pretrained(tmp_path / "first")
    convert_checkpoint(tmp_path / "first", tmp_path / "ours")
    convert_checkpoint(tmp_path / "ours", tmp_path / "second", to="huggingface")
    first, second = tensors_of(tmp_path / "first"), tensors_of(tmp_path / "second")
    assert set(second) == set(first)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    before, after = (read_checkpoint(tmp_path / name).config for name in ("first", "second"))
    assert after == before


@pytest.mark.parametrize(
    ("store", "dtype"), [("fp16", np.float16), ("bf16", np.float32), ("fp32", np.float32)]
)
def test_weights_are_rounded_to_the_nearest(tmp_path: Path, store: str, dtype: Any) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2)
    convert_checkpoint(source, tmp_path / "small", store=store)
    kept, rounded = tensors_of(source), tensors_of(tmp_path / "small")
    step = {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 0.0}[store]
    for name, array in kept.items():
        assert rounded[name].dtype == dtype
        assert (np.abs(rounded[name] - array) <= step * np.abs(array) + 1e-7).all()


def test_what_half_precision_cannot_hold_is_named(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2)
    config, state = read_checkpoint(source).config, load_model(read_checkpoint(source)).state_dict()
    state["h.1.mlp.c_fc.weight"][3, 2] = -1e5
    write_checkpoint(source, config, state, overwrite=True)
    with pytest.raises(CheckpointError) as told:
        convert_checkpoint(source, tmp_path / "hf", to="huggingface", store="fp16")
    assert str(told.value) == (
        "transformer.h.1.mlp.c_fc.weight has a value of 100,000, and fp16 ends at 65,504; store it as fp32."
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"position": "sinusoidal"}, "position is sinusoidal and must be learned"),
        ({"position": "sinusoidal"}, "position is sinusoidal and must be rotary"),
        ({"position": "alibi"}, "position is alibi and must be learned"),
        ({"norm_order": "post"}, "norm_order is post and must be pre"),
        ({"final_norm": False}, "final_norm is false and must be true"),
        ({"head_bias": True}, "head_bias is true and must be false"),
        ({"embedding_scale": "sqrt"}, "embedding_scale is sqrt and must be 1.0"),
        ({"activation": "geglu"}, "activation is geglu and must be gelu, gelu_tanh, relu or silu"),
        ({"n_kv_head": 2}, "n_kv_head is 2 and must be 4"),
        ({"head_size": 5}, "head_size is 5 and must be 24"),
        ({"attention_scale": "n_embd"}, "attention_scale is n_embd and must be"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as told:
        choose_layout(GPTConfig.from_dict(GPT2 | change), "huggingface", "mine")
    assert words in str(told.value)
    assert str(told.value).startswith(
        "mine cannot be written in the layout huggingface: for Hugging Face gpt2"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rope_style": "interleaved"}, "rope_style is interleaved and must be half"),
        ({"rope_size": 4}, "rope_size is 4 and must be 6"),
        ({"rope_scaling": {"kind": "ntk", "factor": 2.0}}, "rope_scaling is "),
        ({"attention_scale_by_layer": True}, "attention_scale_by_layer is true and must be false"),
    ],
)
def test_what_does_not_fit_llama_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as told:
        choose_layout(GPTConfig.from_dict(LLAMA | change), "huggingface")
    assert words in str(told.value)


def test_an_unknown_layout_is_told_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="there is no layout 'caffe'; known are gpt-onnx, huggingface"):
        choose_layout(GPTConfig.from_dict(GPT2), "caffe")
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS)


def test_tokenizer_and_generation_defaults_go_along(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2 | {"vocab_size": 5000})
    shipped = Path(__file__).parents[2] / "models" / "sotu"
    report = convert_checkpoint(source, tmp_path / "hf", to="huggingface", tokenizer=shipped)
    assert (report.path / "tokenizer.json").read_bytes() == (shipped / "tokenizer.json").read_bytes()
    end = json.loads((report.path / "config.json").read_text())["eos_token_id"]
    added = json.loads((shipped / "tokenizer.json").read_text())["added_tokens"]
    assert [token["id"] for token in added if token["content"] == "<|endoftext|>"] == [end]
    (report.path / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "eos_token_id": end}))
    back = convert_checkpoint(report.path, tmp_path / "back")
    kept = json.loads((back.path / "generation_config.json").read_text())
    assert kept["temperature"] == 0.6
    assert read_checkpoint(back.path).generation["temperature"] == 0.6


def test_an_old_folder_is_replaced_only_when_told(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2)
    out = convert_checkpoint(source, tmp_path / "out").path
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(
        CheckpointError, match="is already there; choose another name, or replace it with --over"
    ):
        convert_checkpoint(source, out, store="fp16")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    convert_checkpoint(source, out, store="fp16", overwrite=True)
    assert read_header(out / "model.safetensors").tensors["wte.weight"].dtype == "F16"
    (out / "mine.txt").write_text("precious")
    with pytest.raises(CheckpointError, match=r"holds mine\.txt, which no conversion wrote"):
        convert_checkpoint(source, out, overwrite=True)
    assert (out / "mine.txt").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours", "out"]


def test_the_source_is_never_its_own_destination(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2)
    with pytest.raises(InputError, match="is where the source lies; name another folder"):
        convert_checkpoint(source, tmp_path / "." / "ours", overwrite=True)


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random_checkpoint(tmp_path / "ours", GPT2)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(source, tmp_path / "deep" / "out", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_progress_is_told_to_the_last_byte(tmp_path: Path) -> None:
    source, told = random_checkpoint(tmp_path / "ours", GPT2), []
    convert_checkpoint(source, tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    size = 4 * sum(array.size for array in tensors_of(source).values())
    assert told[-1] == (size, size)
    assert len(told) == len(tensors_of(source))


def test_each_weight_is_read_when_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random_checkpoint(tmp_path / "ours", LLAMA)
    read, ahead = [], []
    make = Checkpoint.numpy

    def counted(checkpoint: Checkpoint, name: str) -> Any:
        read.append(name)
        return make(checkpoint, name)

    monkeypatch.setattr(Checkpoint, "numpy", counted)
    convert_checkpoint(
        source, tmp_path / "hf", to="huggingface", progress=lambda done, total: ahead.append(len(read))
    )
    assert len(read) == len(set(read))  # queries, keys and values are cut out of one reading
    parts = [1 + 2 * name.endswith("c_attn.weight") for name in read]
    assert ahead == [index + 1 for index, count in enumerate(parts) for _ in range(count)]
