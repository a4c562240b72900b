"""Hugging Face folders: what is read, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpt_onnx.checkpoint import Checkpoint, load_model, read_checkpoint
from gpt_onnx.errors import CheckpointError, GptOnnxError, InputError
from tests.hf_configs import GPT2_CONFIG, LLAMA_CONFIG

Tensors = dict[str, torch.Tensor]


def gpt2_tensors() -> Tensors:
    """The tensors of GPT2_CONFIG as transformers names and shapes them."""
    shapes = {"wte.weight": (50, 8), "wpe.weight": (16, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
    for layer in range(2):
        for name, size in {"attn.c_attn": 24, "attn.c_proj": 8, "mlp.c_fc": 32}.items():
            shapes |= {f"h.{layer}.{name}.weight": (8, size), f"h.{layer}.{name}.bias": (size,)}
        shapes |= {f"h.{layer}.mlp.c_proj.weight": (32, 8), f"h.{layer}.mlp.c_proj.bias": (8,)}
        for norm in ("ln_1", "ln_2"):
            shapes |= {f"h.{layer}.{norm}.{kind}": (8,) for kind in ("weight", "bias")}
    return filled({f"transformer.{name}": shape for name, shape in shapes.items()})


def llama_tensors(*, head: bool = True, qkv_bias: bool = False) -> Tensors:
    """The tensors of LLAMA_CONFIG as transformers names and shapes them: heads of 4."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (50, 16), "model.norm.weight": (16,)}
    rows = {"q_proj": 16, "k_proj": 8, "v_proj": 8}
    for layer in range(2):
        stem = f"model.layers.{layer}"
        shapes |= {f"{stem}.{norm}.weight": (16,) for norm in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{stem}.self_attn.{name}.weight": (size, 16) for name, size in rows.items()}
        shapes |= {f"{stem}.self_attn.o_proj.weight": (16, 16), f"{stem}.mlp.down_proj.weight": (16, 24)}
        shapes |= {f"{stem}.mlp.{name}.weight": (24, 16) for name in ("gate_proj", "up_proj")}
        if qkv_bias:
            shapes |= {f"{stem}.self_attn.{name}.bias": (size,) for name, size in rows.items()}
    if head:
        shapes["lm_head.weight"] = (50, 16)
    return filled(shapes)


def filled(shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def write(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def gpt2(folder: Path, change: Callable[[Tensors], object] | None = None, **config: Any) -> Path:
    tensors = gpt2_tensors()
    if change is not None:
        change(tensors)
    return write(folder / "model", GPT2_CONFIG | config, tensors)


def llama(folder: Path, change: Callable[[Tensors], object] | None = None, **config: Any) -> Path:
    values = LLAMA_CONFIG | config
    tensors = llama_tensors(
        head=not values.get("tie_word_embeddings"), qkv_bias=values["model_type"] == "qwen2"
    )
    if change is not None:
        change(tensors)
    return write(folder / "model", values, tensors)


def refused(folder: Path, message: str, kind: type[GptOnnxError] = CheckpointError) -> None:
    with pytest.raises(kind, match=message) as caught:
        load_model(read_checkpoint(folder))
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_gpt2_turns_conv1d_round(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(gpt2(tmp_path))
    tensors, config = gpt2_tensors(), checkpoint.config
    assert checkpoint.kind == "Hugging Face folder (gpt2)"
    assert (config.position, config.activation, config.d_ff, config.qkv_bias) == (
        "learned",
        "gelu_tanh",
        32,
        True,
    )
    model = load_model(checkpoint).state_dict()
    assert torch.equal(model["wte.weight"], tensors["transformer.wte.weight"])
    for name in ("h.1.attn.c_attn.weight", "h.0.mlp.c_proj.weight"):
        assert torch.equal(model[name], tensors[f"transformer.{name}"].T)
    assert torch.equal(model["h.1.mlp.c_fc.bias"], tensors["transformer.h.1.mlp.c_fc.bias"])


def test_llama_joins_queries_keys_and_values(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(llama(tmp_path))
    tensors, config = llama_tensors(), checkpoint.config
    assert (config.position, config.rope_style, config.norm, config.activation) == (
        "rotary",
        "half",
        "rmsnorm",
        "swiglu",
    )
    assert (config.n_kv_head, config.head_size, config.tie_embeddings) == (2, 4, False)
    assert not any((config.qkv_bias, config.proj_bias, config.mlp_bias, config.norm_bias))
    parts = [tensors[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert np.array_equal(checkpoint.numpy("h.1.attn.c_attn.weight"), torch.cat(parts))
    for ours, theirs in {"c_gate": "gate_proj", "c_fc": "up_proj", "c_proj": "down_proj"}.items():
        stored = tensors[f"model.layers.0.mlp.{theirs}.weight"]
        assert np.array_equal(checkpoint.numpy(f"h.0.mlp.{ours}.weight"), stored)
    assert np.array_equal(checkpoint.numpy("lm_head.weight"), tensors["lm_head.weight"])


def unprefixed(tensors: Tensors) -> None:
    for name in list(tensors):
        tensors[name.removeprefix("transformer.").removeprefix("model.")] = tensors.pop(name)


def test_names_may_lack_the_prefix(tmp_path: Path) -> None:
    assert read_checkpoint(gpt2(tmp_path, unprefixed, architectures=["GPT2Model"])).numpy("wte.weight").any()
    tied = llama(tmp_path, unprefixed, architectures=["LlamaModel"], tie_word_embeddings=True)
    assert read_checkpoint(tied).numpy("h.0.ln_1.weight").any()


def masked(tensors: Tensors) -> None:
    tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16, dtype=torch.uint8)
    tensors["transformer.h.1.attn.bias"] = torch.ones(1, 1, 16, 16)
    tensors["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)


def test_masks_of_old_versions_are_passed_over(tmp_path: Path) -> None:
    assert "h.0.attn.c_attn.bias" in read_checkpoint(gpt2(tmp_path, masked)).recipes
    old = llama(tmp_path, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}))
    assert len(read_checkpoint(old).recipes) == len(read_checkpoint(llama(tmp_path)).recipes)


def test_biases_of_llama_are_those_that_it_says(tmp_path: Path) -> None:
    rows = {"self_attn.q_proj": 16, "self_attn.k_proj": 8, "self_attn.v_proj": 8, "self_attn.o_proj": 16}
    widths = {"mlp.gate_proj": 24, "mlp.up_proj": 24, "mlp.down_proj": 16}

    def biased(tensors: Tensors) -> None:
        for layer in range(2):
            for name, size in (rows | widths).items():
                tensors[f"model.layers.{layer}.{name}.bias"] = torch.full((size,), float(size))

    checkpoint = read_checkpoint(llama(tmp_path, biased, attention_bias=True, mlp_bias=True))
    assert checkpoint.config.proj_bias
    assert np.array_equal(checkpoint.numpy("h.1.attn.c_attn.bias"), [16.0] * 16 + [8.0] * 16)
    assert np.array_equal(checkpoint.numpy("h.0.mlp.c_gate.bias"), [24.0] * 24)
    refused(llama(tmp_path, biased), "q_proj.bias")


def test_a_tied_head_may_be_stored_twice_or_alone(tmp_path: Path) -> None:
    def twice(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    def alone(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")

    for change in (None, twice, alone):
        checkpoint = read_checkpoint(llama(tmp_path, change, tie_word_embeddings=True))
        stored = llama_tensors(head=False)["model.embed_tokens.weight"]
        assert np.array_equal(checkpoint.numpy("wte.weight"), stored)
        assert "lm_head.weight" not in checkpoint.recipes


def test_unknown_keys_are_passed_over_and_told(tmp_path: Path) -> None:
    notes = read_checkpoint(llama(tmp_path, my_key=3, auto_map={"AutoModel": "x.Y"})).notes
    assert "my_key" in notes[0]
    assert "was not run" in notes[1]
    assert read_checkpoint(llama(tmp_path)).notes == ()


def head_differs(tensors: Tensors) -> None:
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1


MISTRAL: dict[str, Any] = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
CONTRADICTIONS: dict[str, tuple[Any, Callable[[Tensors], object] | None, dict[str, Any], str]] = {
    "vocabulary": (
        gpt2,
        None,
        {"vocab_size": 51},
        "vocab_size = 51, by which .*wte.weight must have 51 tokens",
    ),
    "positions": (gpt2, None, {"n_positions": 17}, "n_positions = 17, .* 17 positions, and it has 16"),
    "width": (gpt2, None, {"n_embd": 10}, "n_embd = 10, .* must have 10 columns, and it has 8"),
    "inner": (gpt2, None, {"n_inner": 16}, "n_inner = 16, .*c_fc.weight must have 16 outputs, and it has 32"),
    "layers": (gpt2, None, {"n_layer": 3}, "n_layer = 3, and .* has 2 layers"),
    "a layer of many digits": (
        llama,
        lambda t: t.update({f"model.layers.{'9' * 5000}.input_layernorm.weight": torch.ones(16)}),
        {},
        r"no use for: model\.layers\.9{187}\.\.\.",
    ),
    "fewer layers": (llama, None, {"num_hidden_layers": 1}, "num_hidden_layers = 1, and .* has 2 layers"),
    "heads": (llama, None, {"head_dim": 8}, "num_attention_heads = 4, by which .*q_proj.weight must have 32"),
    "key heads": (llama, None, {"num_key_value_heads": 4}, "num_key_value_heads = 4, .* 16 outputs, and it"),
    "d_ff": (
        llama,
        None,
        {"intermediate_size": 20},
        "intermediate_size = 20, .*gate_proj.weight must have 20",
    ),
    "no head": (llama, lambda t: t.pop("lm_head.weight"), {}, "no lm_head.weight, .*set it to true"),
    "two heads": (
        llama,
        head_differs,
        {"tie_word_embeddings": True},
        "lm_head.weight differs from model.embed",
    ),
    "lacking": (gpt2, lambda t: t.pop("transformer.h.1.mlp.c_fc.bias"), {}, r"lacks h.1.mlp.c_fc.bias"),
    "unknown": (gpt2, lambda t: t.update(extra=torch.ones(3)), {}, r"not named: extra \[3\]"),
    "nan": (gpt2, lambda t: t["transformer.wpe.weight"].fill_(torch.nan), {}, "wpe.weight has NaN or inf"),
    "quantised": (
        llama,
        lambda t: t.update({"model.norm.weight": torch.ones(16, dtype=torch.int8)}),
        {},
        "model.norm.weight has dtype 'I8'.*quantised",
    ),
    "overflow": (
        llama,
        lambda t: t.update({"model.norm.weight": torch.full((16,), 7e4).half()}),
        {},
        "model.norm.weight has NaN or infinity in 16 .*half precision",
    ),
    "float64": (
        llama,
        lambda t: t.update({"model.norm.weight": torch.full((16,), 1e300, dtype=torch.float64)}),
        {},
        "model.norm.weight has a value of 1.0e\\+300",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused_by_name(tmp_path: Path, case: str) -> None:
    make, change, config, message = CONTRADICTIONS[case]
    refused(make(tmp_path, change, **config), message)


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    folder = gpt2(tmp_path)
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    refused(folder, "no weights: none of model.safetensors, .*tf_model.h5 is of another program")
    (folder / "tf_model.h5").rename(folder / "pytorch_model.bin")
    (folder / "config.json").unlink()
    refused(folder, "has no config.json, which says")
    (folder / "adapter_config.json").write_text("{}")
    refused(folder, "an adapter that changes another model's weights")


def test_a_folder_of_the_cache_names_the_model_in_it(tmp_path: Path) -> None:
    (tmp_path / "models--x" / "snapshots" / "abc").mkdir(parents=True)
    refused(tmp_path / "models--x", "name the model in it: .*snapshots/abc")


def test_a_window_that_the_context_fills_is_told(tmp_path: Path) -> None:
    [note] = read_checkpoint(llama(tmp_path, **MISTRAL, sliding_window=32)).notes
    assert "the last 32 tokens alone" in note
    assert read_checkpoint(llama(tmp_path, **MISTRAL, sliding_window=None)).notes == ()


def test_options_that_have_no_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave --config"):
        read_checkpoint(gpt2(tmp_path), config="x.toml")


def split(folder: Path, write_shard: Callable[[Tensors, Path], object], suffix: str, stem: str) -> Checkpoint:
    """Rewrite a folder's weights as two shards with an index, and read it."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places: dict[str, str] = {}
    for number, part in enumerate((names[:9], names[9:]), 1):
        shard = f"{stem}-0000{number}-of-00002.{suffix}"
        write_shard({name: tensors[name] for name in part}, folder / shard)
        places |= dict.fromkeys(part, shard)
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"weight_map": places}))
    return read_checkpoint(folder)


WRITERS: dict[str, tuple[Callable[[Tensors, Path], object], str, str]] = {
    "safetensors": (save_file, "safetensors", "model"),
    "bin": (torch.save, "bin", "pytorch_model"),
    "old bin": (
        lambda tensors, path: torch.save(tensors, path, _use_new_zipfile_serialization=False),
        "bin",
        "pytorch_model",
    ),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_shards_hold_the_same_weights(tmp_path: Path, kind: str) -> None:
    whole = load_model(read_checkpoint(llama(tmp_path))).state_dict()
    sharded = load_model(split(llama(tmp_path), *WRITERS[kind])).state_dict()
    assert all(torch.equal(whole[name], sharded[name]) for name in whole)


@pytest.mark.parametrize("kind", ["bin", "old bin"])
def test_one_bin_file_holds_the_same_weights(tmp_path: Path, kind: str) -> None:
    folder = gpt2(tmp_path, masked)
    whole = load_model(read_checkpoint(folder)).state_dict()
    WRITERS[kind][0](load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    again = load_model(read_checkpoint(folder)).state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = gpt2(tmp_path)
    definition = {"model": {"type": "BPE", "vocab": {"a": 50}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    refused(folder, "ids up to 50 and the model's vocabulary has 50 rows")


def test_a_tokenizer_of_sentencepiece_alone_is_left_out_and_told(tmp_path: Path) -> None:
    folder = llama(tmp_path)
    (folder / "tokenizer.model").write_bytes(b"\n")
    checkpoint = read_checkpoint(folder)
    assert checkpoint.tokenizer is None
    assert "tokenizer.model" in checkpoint.notes[0]
    assert "save_pretrained" in checkpoint.notes[0]
    assert read_checkpoint(folder, tokenizer="none").notes == ()
