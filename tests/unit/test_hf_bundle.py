"""A Hugging Face folder with a tokenizer becomes a bundle that keeps all that the folder says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from gpt_onnx import load
from gpt_onnx.bundle import open_bundle
from gpt_onnx.export import export_bundle

CHAT = "{% for message in messages %}{{ message.content }}{% endfor %}"


def make_tokenizer(folder: Path) -> int:
    """Write a byte-level tokenizer of 256 bytes and two control tokens, and what belongs to it."""
    vocab = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    rust = Tokenizer(models.BPE(vocab, []))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens([AddedToken(text, special=True) for text in ("<|begin|>", "<|end|>")])
    rust.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", 256)]
    )
    rust.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<|begin|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (folder / "chat_template.jinja").write_text(CHAT)
    return rust.get_vocab_size()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("hf") / "small-llama"
    folder.mkdir()
    config = LlamaConfig(
        vocab_size=make_tokenizer(folder) + 6,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=3,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    said = {
        "bos_token_id": 256,
        "eos_token_id": [257, 3],
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.9,
    }
    (folder / "generation_config.json").write_text(json.dumps(said))
    export_bundle(folder, folder.with_name("bundle"), check="quick")
    return folder.with_name("bundle")


def read(bundle: Path, name: str) -> Any:
    return json.loads((bundle / name).read_text(encoding="utf-8"))


def test_the_manifest_is_of_the_folder(bundle: Path) -> None:
    manifest = open_bundle(bundle).manifest
    assert (manifest.name, manifest.model.position, manifest.model.n_kv_head) == ("small-llama", "rotary", 1)
    assert manifest.checked


def test_generation_is_as_the_folder_says(bundle: Path) -> None:
    values = read(bundle, "generation_config.json")
    assert (values["bos_token_id"], values["eos_token_id"], values["pad_token_id"]) == (256, [257, 3], 257)
    assert (values["temperature"], values["top_p"], values["top_k"]) == (0.6, 0.9, 50)
    defaults = load(bundle).defaults
    assert (defaults.eos_ids, defaults.sampling.temperature) == ((257, 3), 0.6)


def test_genai_is_told_of_every_end(bundle: Path) -> None:
    values = read(bundle, "genai_config.json")
    assert (values["model"]["type"], values["model"]["eos_token_id"]) == ("decoder", [257, 3])
    assert values["search"]["top_p"] == 0.9
    assert values["model"]["decoder"]["num_key_value_heads"] == 1


def test_the_chat_template_and_special_tokens_are_in_one_file(bundle: Path) -> None:
    values = read(bundle, "tokenizer_config.json")
    assert (values["chat_template"], values["bos_token"], values["eos_token"]) == (
        CHAT,
        "<|begin|>",
        "<|end|>",
    )


def test_clients_find_the_shape_of_the_cache(bundle: Path) -> None:
    values = read(bundle, "config.json")
    assert (values["model_type"], values["num_key_value_heads"], values["head_dim"]) == ("llama", 1, 8)


def test_a_text_begins_with_the_first_token_and_is_continued(bundle: Path) -> None:
    gpt = load(bundle)
    assert gpt.encode("hi") == [256, *(gpt.tokenizer.encode("hi")[1:] if gpt.tokenizer else [])]
    assert isinstance(gpt.complete("hi", max_new_tokens=8, seed=1, temperature=0.0), str)
