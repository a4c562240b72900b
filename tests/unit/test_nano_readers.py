"""What nanoGPT's, minGPT's and nanochat's checkpoints tell, what is asked, and what is refused."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpt_onnx.checkpoint import Checkpoint, TokenizerFiles, read_checkpoint
from gpt_onnx.checkpoint.padding import without_padding
from gpt_onnx.checkpoint.reader import find_reader
from gpt_onnx.checkpoint.readers import READERS, ReadOptions, mingpt, nanochat, nanogpt, state_dict
from gpt_onnx.errors import CheckpointError, ConfigError, InputError

MODELS = runpy.run_path(str(Path(__file__).parents[1] / "nano_models.py"))
SIZES: dict[str, Any] = {"vocab_size": 97, "block_size": 24, "n_layer": 2, "n_head": 4, "n_embd": 32}
State = dict[str, Any]
Change = Callable[[State], None]


def nano(**changes: Any) -> Any:
    return MODELS["randomised"](MODELS["NanoGPT"](**(SIZES | changes)))


def nano_dict(**changes: Any) -> State:
    model = nano(**changes)
    return {"model": dict(model.state_dict()), "model_args": dict(model.model_args), "iter_num": 1}


def older() -> State:
    return dict(MODELS["randomised"](MODELS["OldMinGPT"](**SIZES)).state_dict())


def saved(path: Path, value: Any) -> Path:
    torch.save(value, path)
    return path


def config(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read_nano(folder: Path, change: Change | None = None, answers: str = "", **changes: Any) -> Checkpoint:
    value = nano_dict(**changes)
    if change is not None:
        change(value)
    path = saved(folder / "ckpt.pt", value)
    return read_checkpoint(path, config=config(folder, answers) if answers else None)


def test_nanogpt_tells_its_configuration(tmp_path: Path) -> None:
    found = read_nano(tmp_path)
    assert found.kind == "nanoGPT checkpoint"
    assert found.name == "ckpt"
    expected = {
        "vocab_size": 97,
        "context_length": 24,
        "n_layer": 2,
        "n_head": 4,
        "n_kv_head": 4,
        "n_embd": 32,
        "d_ff": 128,
        "position": "learned",
        "activation": "gelu",
        "norm": "layernorm",
        "norm_order": "pre",
        "norm_eps": 1e-5,
        "bias": True,
        "qkv_bias": True,
        "tie_embeddings": True,
        "attention_scale": "head_size",
    }
    assert {name: getattr(found.config, name) for name in expected} == expected
    assert found.padded_vocab_size is None


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module.", "_orig_mod.module.", "module._orig_mod."])
def test_prefixes_of_wrappers_are_left_out(tmp_path: Path, prefix: str) -> None:
    value = nano_dict()
    plain = value["model"]
    value["model"] = {f"{prefix}{name}": tensor for name, tensor in plain.items()}
    found = read_checkpoint(saved(tmp_path / "ckpt.pt", value))
    np.testing.assert_array_equal(found.numpy("ln_f.weight"), plain["transformer.ln_f.weight"].numpy())
    np.testing.assert_array_equal(found.numpy("wte.weight"), plain["transformer.wte.weight"].numpy())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("said", [True, False])
def test_biases_are_as_said_or_as_stored(tmp_path: Path, bias: bool, said: bool) -> None:
    def change(value: State) -> None:
        if not said:  # nanoGPT of before January 2023
            del value["model_args"]["bias"]

    found = read_nano(tmp_path, change, bias=bias)
    assert (found.config.bias, found.config.qkv_bias, found.config.norm_bias) == (bias, bias, bias)
    assert ("h.0.attn.c_attn.bias" in found.recipes) == bias


def test_masks_are_no_weights_and_must_be_causal(tmp_path: Path) -> None:
    assert "h.0.attn.bias" not in read_nano(tmp_path, mask=True).recipes

    def blind(value: State) -> None:
        for layer in range(2):
            value["model"][f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 24, 24)

    with pytest.raises(CheckpointError, match=r"h\.0\.attn\.bias is a mask that is not causal"):
        read_nano(tmp_path, blind, mask=True)


def test_a_head_stored_twice_with_equal_values_is_tied(tmp_path: Path) -> None:
    def copied(value: State) -> None:
        value["model"]["lm_head.weight"] = value["model"]["lm_head.weight"].clone()

    found = read_nano(tmp_path, copied)
    assert found.config.tie_embeddings
    assert "lm_head.weight" not in found.recipes


def test_a_head_alone_is_missing_and_that_is_right(tmp_path: Path) -> None:
    found = read_nano(tmp_path, lambda value: value["model"].pop("lm_head.weight"))
    assert found.config.tie_embeddings


def other_head(value: State) -> None:
    value["model"]["lm_head.weight"] = value["model"]["lm_head.weight"] + 1


def test_a_head_that_differs_is_refused_unless_it_is_said_to_be_free(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"different values.*tie_embeddings = false"):
        read_nano(tmp_path, other_head)
    found = read_nano(tmp_path, other_head, "tie_embeddings = false")
    assert not found.config.tie_embeddings
    np.testing.assert_array_equal(found.numpy("lm_head.weight"), found.numpy("wte.weight") + 1)


PADDED: dict[str, Any] = {"vocab_size": 50304, "n_embd": 8, "n_layer": 1, "n_head": 1}


@pytest.mark.parametrize("free", [False, True])
def test_padding_of_the_vocabulary_is_left_out(tmp_path: Path, free: bool) -> None:
    answers = "tie_embeddings = false" if free else ""
    found = read_nano(tmp_path, other_head if free else None, answers, **PADDED)
    assert (found.config.vocab_size, found.padded_vocab_size) == (50257, 50304)
    for name in ("wte.weight", "lm_head.weight")[: 1 + free]:
        assert found.numpy(name).shape == (50257, 8)
    assert any("from 50257 on (47) are padding" in note for note in found.notes)


def test_padding_is_kept_where_it_is_said_to_be_none(tmp_path: Path) -> None:
    found = read_nano(tmp_path, None, "vocab_size = 50304", **PADDED)
    assert (found.config.vocab_size, found.padded_vocab_size) == (50304, None)
    assert found.numpy("wte.weight").shape == (50304, 8)


@pytest.mark.parametrize(("tokens", "rows"), [(50257, 50257), (50258, 50304)])
def test_a_tokenizer_of_more_tokens_shows_that_nothing_is_padding(
    tokens: int, rows: int, tmp_path: Path
) -> None:
    whole = read_nano(tmp_path, None, "vocab_size = 50304", **PADDED)
    model = {"type": "WordLevel", "vocab": {str(token): token for token in range(tokens)}, "unk_token": "0"}
    files = TokenizerFiles(definition=json.dumps({"model": model}))
    assert without_padding(replace(whole, tokenizer=files)).config.vocab_size == rows


def test_other_vocabularies_are_cut_only_where_it_is_said(tmp_path: Path) -> None:
    assert read_nano(tmp_path, vocab_size=128).padded_vocab_size is None
    found = read_nano(tmp_path, None, "vocab_size = 100", vocab_size=128)
    assert (found.config.vocab_size, found.padded_vocab_size) == (100, 128)
    with pytest.raises(ConfigError, match=r"vocab_size = 129; .* has 128 rows"):
        read_nano(tmp_path, None, "vocab_size = 129", vocab_size=128)


def test_what_the_checkpoint_does_not_say_is_said_in_a_note(tmp_path: Path) -> None:
    found = read_nano(tmp_path)
    assert [note for note in found.notes if "nn.GELU()" in note and "gelu_tanh" in note]
    assert [note for note in found.notes if "--tokenizer" in note]
    found = read_nano(tmp_path, None, 'activation = "gelu_tanh"')
    assert found.config.activation == "gelu_tanh"
    assert not [note for note in found.notes if "nn.GELU()" in note]
    quiet = read_checkpoint(tmp_path / "ckpt.pt", tokenizer="none")
    assert not [note for note in quiet.notes if "--tokenizer" in note]


def test_answers_that_the_checkpoint_gives_itself_must_agree(tmp_path: Path) -> None:
    assert read_nano(tmp_path, None, "n_head = 4\nblock_size = 24").config.n_head == 4
    with pytest.raises(ConfigError, match=r"n_head = 2; .* says 4"):
        read_nano(tmp_path, None, "n_head = 2")
    with pytest.raises(ConfigError, match=r"unknown key 'heads'; open are activation"):
        read_nano(tmp_path, None, "heads = 2")
    with pytest.raises(ConfigError, match="activation is 'tanh'"):
        read_nano(tmp_path, None, "activation = 'tanh'")


def without(name: str) -> Change:
    return lambda value: value["model_args"].pop(name)


def saying(name: str, argument: object) -> Change:
    return lambda value: value["model_args"].update({name: argument})


def tensor(name: str, made: Tensor | None) -> Change:
    def change(value: State) -> None:
        if made is None:
            del value["model"][name]
        else:
            value["model"][name] = made

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "a size is missing": (without("n_head"), r"model_args lacks 'n_head'"),
    "a size is no number": (saying("n_head", "4"), r"has a str as 'n_head'"),
    "a size is a tensor": (saying("n_head", torch.tensor(4)), r"has a LazyTensor as 'n_head'"),
    "an argument of a fork": (saying("use_rmsnorm", True), r"'use_rmsnorm', which nanoGPT's own code"),
    "heads do not divide": (saying("n_head", 5), r"n_embd = 32 is not a multiple of n_head = 5"),
    "more layers than stored": (saying("n_layer", 3), r"lacks .*h\.\{?layer\}?|lacks .*h\.2"),
    "fewer layers than stored": (saying("n_layer", 1), r"h\.1|h\.\{layer\}"),
    "another vocabulary": (saying("vocab_size", 98), r"wte\.weight has the shape \[97, 32\]"),
    "another context": (saying("block_size", 25), r"wpe\.weight has the shape \[24, 32\]"),
    "biases that are not stored": (saying("bias", False), r"bias"),
    "a missing tensor": (tensor("transformer.ln_f.weight", None), r"lacks .*ln_f\.weight"),
    "an unknown tensor": (tensor("transformer.h.0.ln_1.gain", torch.ones(32)), r"ln_1\.gain"),
    "a sparse weight": (tensor("transformer.ln_f.weight", torch.ones(32).to_sparse()), r"a sparse tensor"),
    "a weight of integers": (
        tensor("transformer.ln_f.weight", torch.arange(32)),
        r"ln_f\.weight has dtype I64",
    ),
    "a name twice": (tensor("module.transformer.ln_f.weight", torch.ones(32)), r"module|ln_f"),
}


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_contradictions_are_refused_by_name(tmp_path: Path, change: Change, said: str) -> None:
    with pytest.raises((CheckpointError, ConfigError), match=said):
        read_nano(tmp_path, change)


def test_the_state_of_an_optimizer_and_foreign_objects_are_no_obstacle(tmp_path: Path) -> None:
    import argparse

    def change(value: State) -> None:
        value["optimizer"] = {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 1e-3}]}
        value["config"] = argparse.Namespace(lr=np.float32(3))

    assert read_nano(tmp_path, change).config.n_layer == 2


def test_nan_in_a_weight_is_named_when_it_is_read(tmp_path: Path) -> None:
    found = read_nano(tmp_path, tensor("transformer.ln_f.weight", torch.full((32,), torch.nan)))
    with pytest.raises(CheckpointError, match=r"transformer\.ln_f\.weight has NaN or infinity in 32 of 32"):
        found.numpy("ln_f.weight")


def test_half_precision_is_read_as_it_is(tmp_path: Path) -> None:
    value = nano_dict()
    value["model"] = {name: weight.bfloat16() for name, weight in value["model"].items()}
    found = read_checkpoint(saved(tmp_path / "ckpt.pt", value))
    expected = value["model"]["transformer.ln_f.weight"].float().numpy()
    np.testing.assert_array_equal(found.numpy("ln_f.weight"), expected)


HEADS = 'n_head = 4\nactivation = "gelu"\n'


def test_a_state_dict_alone_asks_for_heads_and_activation(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt", older())
    with pytest.raises(InputError, match=r"does not say n_head .*; activation \(\"gelu\", \"gelu_tanh\""):
        read_checkpoint(path)
    found = read_checkpoint(path, config=config(tmp_path, HEADS))
    assert (found.config.n_head, found.config.context_length, found.config.position) == (4, 24, "learned")
    assert (found.config.norm_eps, found.config.norm_order, found.config.tie_embeddings) == (
        1e-5,
        "pre",
        False,
    )
    assert found.numpy("wpe.weight").shape == (24, 32)


def test_queries_keys_and_values_are_joined_in_this_order(tmp_path: Path) -> None:
    state = older()
    path = saved(tmp_path / "model.pt", state)
    found = read_checkpoint(path, config=config(tmp_path, HEADS))
    parts = [state[f"blocks.1.attn.{part}.weight"] for part in ("query", "key", "value")]
    np.testing.assert_array_equal(found.numpy("h.1.attn.c_attn.weight"), torch.cat(parts).numpy())


@pytest.mark.parametrize(
    "made", [older, lambda: nano(mask=True, tied=False).state_dict(), lambda: nano().state_dict()]
)
def test_the_template_asks_what_is_open(tmp_path: Path, made: Callable[[], State]) -> None:
    path = saved(tmp_path / "model.pt", dict(made()))
    text = mingpt.template(path, ReadOptions())
    assert '# n_head = "?"' in text
    assert '# activation = "?"' in text
    assert 'norm_order = "pre"' in text
    filled = text.replace('# n_head = "?"', "n_head = 4").replace('# activation = "?"', 'activation = "gelu"')
    assert read_checkpoint(path, config=config(tmp_path, filled)).config.n_head == 4


def test_padding_of_a_state_dict_alone_is_left_out_too(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt", dict(nano(**PADDED).state_dict()))
    found = read_checkpoint(path, config=config(tmp_path, 'n_head = 1\nactivation = "gelu"'))
    assert (found.config.vocab_size, found.padded_vocab_size) == (50257, 50304)
    assert found.numpy("wte.weight").shape == (50257, 8)


def test_a_mask_that_is_not_causal_is_refused(tmp_path: Path) -> None:
    state = older()
    state |= {f"blocks.{layer}.attn.mask": torch.ones(1, 1, 24, 24) for layer in range(2)}
    path = saved(tmp_path / "model.pt", state)
    with pytest.raises(CheckpointError, match=r"attn\.mask is a mask that is not causal"):
        read_checkpoint(path, config=config(tmp_path, HEADS))


@pytest.mark.parametrize("kind", ["ckpt", "state"])
def test_a_table_of_names_is_not_for_names_that_are_known(tmp_path: Path, kind: str) -> None:
    value = nano_dict()
    path = saved(tmp_path / "model.pt", value if kind == "ckpt" else value["model"])
    with pytest.raises(InputError, match="leave --names"):
        read_checkpoint(path, names=tmp_path / "names.toml")


def chat(**more: Tensor) -> State:
    state = {"transformer.wte.weight": torch.ones(9, 4), "lm_head.weight": torch.ones(9, 4)}
    for part in ("c_q", "c_k", "c_v", "c_proj"):
        state[f"transformer.h.0.attn.{part}.weight"] = torch.ones(4, 4)
    state |= {
        "transformer.h.0.mlp.c_fc.weight": torch.ones(16, 4),
        "transformer.h.0.mlp.c_proj.weight": torch.ones(4, 16),
    }
    return {f"_orig_mod.{name}": value for name, value in (state | more).items()}


def test_nanochat_is_refused_by_what_it_has(tmp_path: Path) -> None:
    path = saved(tmp_path / "model_000100.pt", chat())
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    for part in ("nanochat", "normalised after they are turned", "norms without weights", "square of ReLU"):
        assert part in str(caught.value)
    assert "value embeddings" not in str(caught.value)
    newer = chat(resid_lambdas=torch.ones(1), **{"value_embeds.1.weight": torch.ones(9, 4)})
    with pytest.raises(CheckpointError, match=r"value embeddings; factors on the residual stream"):
        read_checkpoint(saved(path, newer))


RECOGNISED: dict[str, tuple[Callable[[], Any], Any]] = {
    "nanogpt": (nano_dict, nanogpt),
    "older mingpt": (older, mingpt),
    "mingpt": (lambda: dict(nano(mask=True, tied=False).state_dict()), mingpt),
    "nanogpt's state": (lambda: dict(nano().state_dict()), mingpt),
    "nanochat": (chat, nanochat),
    "a model and no sizes": (lambda: {"model": dict(nano().state_dict())}, state_dict),
    "no weights": (lambda: {"a": 1}, state_dict),
    "a list": (lambda: [torch.ones(1)], state_dict),
}


@pytest.mark.parametrize(("made", "reader"), RECOGNISED.values(), ids=RECOGNISED.keys())
def test_each_kind_is_recognised_by_its_reader_alone(
    tmp_path: Path, made: Callable[[], Any], reader: Any
) -> None:
    path = saved(tmp_path / "file.pt", made())
    assert find_reader(path) is reader.READER
    ours = [module.READER for module in (nanogpt, mingpt, nanochat)]
    assert sum(one.recognises(path) for one in ours) == (reader is not state_dict)


def test_the_conv1d_of_hugging_face_is_not_taken_for_a_linear(tmp_path: Path) -> None:
    state = {
        name: value.T.contiguous()
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        else value
        for name, value in nano().state_dict().items()
    }
    path = saved(tmp_path / "model.pt", state)
    assert not mingpt.recognises(path)
    assert find_reader(path) is state_dict.READER


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"PK\x03\x04" + b"x" * 100, b"\x80\x02}."])
def test_damaged_files_are_of_no_kind_and_raise_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "ckpt.pt"
    path.write_bytes(data)
    for module in (nanogpt, mingpt, nanochat):
        assert not module.recognises(path)
        assert not module.recognises(tmp_path)
        assert not module.recognises(tmp_path / "missing")
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_a_folder_names_the_file_in_it(tmp_path: Path) -> None:
    saved(tmp_path / "ckpt.pt", nano_dict())
    with pytest.raises(CheckpointError, match=r"holds ckpt\.pt \(nanoGPT checkpoint\): name "):
        read_checkpoint(tmp_path)
    assert len({reader.kind for reader in READERS}) == len(READERS)


def beside(folder: Path, **model: Any) -> None:
    """config.json as minGPT's setup_logging writes it."""
    sizes = {"model_type": None, "n_layer": 2, "n_head": 4, "n_embd": 32} | model
    sections = {"system": {"seed": 1}, "data": {}, "model": sizes, "trainer": {"max_iters": None}}
    (folder / "config.json").write_text(json.dumps(sections))


def test_the_config_of_mingpt_beside_it_answers(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.pt", dict(nano(mask=True, tied=False).state_dict()))
    beside(tmp_path)
    found = read_checkpoint(path)
    assert (found.config.n_head, found.config.activation) == (4, "gelu_tanh")
    assert any("config.json beside" in note for note in found.notes)


def test_a_model_type_of_mingpt_stands_for_its_sizes(tmp_path: Path) -> None:
    model = nano(mask=True, tied=False, n_layer=3, n_head=3, n_embd=48)
    beside(tmp_path, model_type="gpt-nano", n_layer=None, n_head=None, n_embd=None)
    assert read_checkpoint(saved(tmp_path / "model.pt", dict(model.state_dict()))).config.n_head == 3


@pytest.mark.parametrize("model", [{"n_layer": 3}, {"n_embd": 64}, {"n_head": None}, {"n_head": "4"}])
def test_the_config_of_another_run_answers_nothing(tmp_path: Path, model: State) -> None:
    path = saved(tmp_path / "model.pt", dict(nano(mask=True, tied=False).state_dict()))
    beside(tmp_path, **model)
    with pytest.raises(InputError, match="does not say n_head"):
        read_checkpoint(path)
