"""Training that starts from a checkpoint of another program: its tokenizer and its words are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from gpt_onnx import load
from gpt_onnx.checkpoint import read_checkpoint, write_checkpoint
from gpt_onnx.checkpoint.convert import convert_checkpoint
from gpt_onnx.errors import InputError
from gpt_onnx.export import export_bundle
from gpt_onnx.train import TrainOptions, train
from gpt_onnx.train.data import prepare

CHAT = "{% for message in messages %}<s>{{ message.content }}</s>{% endfor %}"
TEXTS = ("the quick brown fox jumps over the lazy dog. " * 9, "a slow green turtle sleeps. " * 9)
BEGIN, END = 256, 257


def _tokenizer(folder: Path) -> None:
    """Write a tokenizer with the control tokens of Llama, and none of GPT-2."""
    vocab = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    rust = Tokenizer(models.BPE(vocab, []))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", "</s>")])
    rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BEGIN)])
    rust.save(str(folder / "tokenizer.json"))
    said = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT, "model_max_length": 16}
    (folder / "tokenizer_config.json").write_text(json.dumps(said))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("hf") / "small-llama"
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = LlamaConfig(vocab_size=260, max_position_embeddings=16, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)
    _tokenizer(folder)
    _say(folder, {"eos_token_id": [END, 5], "bos_token_id": BEGIN, "temperature": 0.6, "do_sample": True})
    for name, text in zip("ab", TEXTS, strict=True):
        (folder.parent / f"{name}.txt").write_text(text)
    return folder


def _say(folder: Path, generation: dict[str, Any]) -> None:
    (folder / "generation_config.json").write_text(json.dumps(generation))


def _options(folder: Path, init: Path, output: Path) -> TrainOptions:
    corpus = tuple(folder.parent / f"{name}.txt" for name in "ab")
    return TrainOptions(
        corpus=corpus, validation=corpus[:1], output=output, init=init, steps=4, batch_size=2, seed=3
    )


def _train(folder: Path, init: Path, output: Path) -> Path:
    assert train(_options(folder, init, output)) is not None
    return output


def test_a_hugging_face_folder_is_trained_and_exported_with_its_own_words(
    folder: Path, tmp_path: Path
) -> None:
    first, trained = read_checkpoint(folder), read_checkpoint(_train(folder, folder, tmp_path / "trained"))
    assert trained.config == first.config
    assert trained.tokenizer == first.tokenizer
    assert trained.generation == first.generation
    export_bundle(tmp_path / "trained", tmp_path / "bundle", check="quick")
    defaults = load(tmp_path / "bundle").defaults
    assert (defaults.bos_id, defaults.eos_ids, defaults.sampling.temperature) == (BEGIN, (END, 5), 0.6)
    said = json.loads((tmp_path / "bundle" / "tokenizer_config.json").read_text())
    assert (said["bos_token"], said["eos_token"], said["chat_template"]) == ("<s>", "</s>", CHAT)


def test_a_conversion_of_it_trains_to_the_same_weights(folder: Path, tmp_path: Path) -> None:
    convert_checkpoint(folder, tmp_path / "converted")
    one, other = (
        read_checkpoint(_train(folder, init, tmp_path / name))
        for name, init in (("one", folder), ("other", tmp_path / "converted"))
    )
    for name in one.recipes:
        np.testing.assert_array_equal(one.numpy(name), other.numpy(name))
    assert (one.tokenizer, one.generation) == (other.tokenizer, other.generation)


@pytest.fixture
def undecided(folder: Path, tmp_path: Path) -> Path:
    """A checkpoint of ours whose files beside the weights say nothing of an end."""
    convert_checkpoint(folder, tmp_path / "init")
    _say(tmp_path / "init", {})
    (tmp_path / "init" / "tokenizer_config.json").write_text("{}")
    return tmp_path / "init"


@pytest.mark.parametrize(
    ("generation", "special", "end"),
    [
        ({"eos_token_id": 9}, {"eos_token": "</s>"}, 9),
        ({"eos_token_id": [8, 9]}, {}, 8),
        ({}, {"eos_token": "</s>"}, END),
    ],
)
def test_documents_are_separated_by_the_sources_own_end(
    folder: Path, undecided: Path, generation: dict[str, Any], special: dict[str, Any], end: int
) -> None:
    _say(undecided, generation)
    (undecided / "tokenizer_config.json").write_text(json.dumps(special))
    ids = prepare(_options(folder, undecided, undecided / "out"), undecided).training.tolist()
    assert (ids[:2], ids[-1], ids.count(end)) == ([end, BEGIN], end, 3)


def test_without_an_end_of_its_own_that_of_gpt2_separates(folder: Path, undecided: Path) -> None:
    definition = (undecided / "tokenizer.json").read_text()
    (undecided / "tokenizer.json").write_text(definition.replace("</s>", "<|endoftext|>"))
    ids = prepare(_options(folder, undecided, undecided / "out"), undecided).training.tolist()
    assert (ids[0], ids.count(END)) == (END, 3)


def test_without_any_end_the_remedy_is_told(folder: Path, undecided: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not say which token ends a text.* put its number"):
        _train(folder, undecided, tmp_path / "trained")
    assert not (tmp_path / "trained").exists()


def test_options_that_training_has_not_are_told_with_the_command_that_has_them(
    folder: Path, tmp_path: Path
) -> None:
    save_file({"tokens": np.zeros((8, 4), np.float32)}, tmp_path / "init.safetensors")
    with pytest.raises(InputError, match=r"(?s)--\w+.*; that is for gpt-onnx convert .*\.safetensors -o NEW"):
        _train(folder, tmp_path / "init.safetensors", tmp_path / "trained")


def test_a_checkpoint_over_an_older_one_takes_its_generation_settings_away(
    folder: Path, tmp_path: Path
) -> None:
    first = read_checkpoint(folder)
    tensors = {name: first.tensor(name) for name in first.recipes}
    write_checkpoint(tmp_path / "new", first.config, tensors, generation={"eos_token_id": 7})
    assert read_checkpoint(tmp_path / "new").generation == {"eos_token_id": 7}
    write_checkpoint(tmp_path / "new", first.config, tensors, overwrite=True)
    assert read_checkpoint(tmp_path / "new").generation == {}
