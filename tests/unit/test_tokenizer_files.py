"""A tokenizer's files: what several of them say is put together into two."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles, read_tokenizer
from gpt_onnx.errors import CheckpointError
from gpt_onnx.runtime.tokenizer import load_tokenizer

BYTES = "abcdefghijklmnopqrstuvwxyzĠĊ'."
DEFINITION: dict[str, Any] = {
    "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
    "model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1, "</s>": 2}, "merges": []},
}
LLAMA_TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}


def read(
    folder: Path, files: Mapping[str, Any], definition: Mapping[str, Any] = DEFINITION
) -> TokenizerFiles:
    for name, content in {**files, "tokenizer.json": definition}.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")
    found = read_tokenizer(folder, 16)
    assert found is not None
    return found


def test_special_tokens_come_from_the_map_where_the_configuration_lacks_them(tmp_path: Path) -> None:
    end = {"content": "</s>", "lstrip": False}
    files = {
        "tokenizer_config.json": {"bos_token": "<s>", "eos_token": None},
        "special_tokens_map.json": {"bos_token": "other", "eos_token": end, "additional": ["x"]},
    }
    assert read(tmp_path, files).config == {"bos_token": "<s>", "eos_token": end}


def test_without_a_configuration_the_map_alone_speaks(tmp_path: Path) -> None:
    config = read(tmp_path, {"special_tokens_map.json": {"eos_token": "</s>"}}).config
    assert config["eos_token"] == "</s>"
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "bos_token" not in config


NAMED = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
TEMPLATES: dict[str, tuple[dict[str, Any], str | None]] = {
    "text": ({"tokenizer_config.json": {"chat_template": "{{ messages }}"}}, "{{ messages }}"),
    "several": ({"tokenizer_config.json": {"chat_template": NAMED}}, "D"),
    "by name": ({"tokenizer_config.json": {"chat_template": {"default": "D", "rag": "R"}}}, "D"),
    "no default": ({"tokenizer_config.json": {"chat_template": NAMED[:1]}}, None),
    "none": ({"tokenizer_config.json": {"chat_template": None}}, None),
    "file": ({"chat_template.jinja": "{{ file }}"}, "{{ file }}"),
    "file first": (
        {"chat_template.jinja": "J", "tokenizer_config.json": {"chat_template": "C"}},
        "J",
    ),
}


@pytest.mark.parametrize("case", TEMPLATES)
def test_the_chat_template_is_carried(tmp_path: Path, case: str) -> None:
    files, expected = TEMPLATES[case]
    assert read(tmp_path, files).config.get("chat_template") == expected


@pytest.mark.parametrize("template", [3, ["x"], "x" * 1_000_001])
def test_a_chat_template_of_another_form_is_refused(tmp_path: Path, template: Any) -> None:
    with pytest.raises(CheckpointError, match="chat_template that is not a text"):
        read(tmp_path, {"tokenizer_config.json": {"chat_template": template}})


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"])
def test_a_link_out_of_the_folder_is_not_carried_into_a_bundle(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / name
    elsewhere.write_text('{"password": "x"}')
    (tmp_path / name).symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match=f"{name} is a link that leads out of the folder"):
        read(tmp_path, {})


def test_a_link_within_the_folder_and_to_the_blobs_of_a_cache_is_followed(tmp_path: Path) -> None:
    folder, blob = tmp_path / "snapshots" / "main", tmp_path / "blobs" / "0a1b"
    for parent in (folder, blob.parent):
        parent.mkdir(parents=True)
    blob.write_text("{{ blob }}")
    (folder / "chat_template.jinja").symlink_to(Path("..", "..", "blobs", "0a1b"))
    assert read(folder, {}).config["chat_template"] == "{{ blob }}"


def test_a_pipe_is_no_tokenizer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is no file"):
        read_tokenizer(tmp_path, 16)


def test_no_code_of_the_folder_is_named(tmp_path: Path) -> None:
    files = {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["x.Y", None]}, "eos_token": "</s>"}}
    assert read(tmp_path, files).config == {"eos_token": "</s>"}


@pytest.mark.parametrize("wanted", [True, False])
def test_the_template_of_a_tokenizer_json_counts_before_add_bos_token(tmp_path: Path, wanted: bool) -> None:
    """As in transformers."""
    config = {"add_bos_token": wanted, "bos_token": "<s>"}
    files = read(tmp_path, {"tokenizer_config.json": config}, DEFINITION | {"post_processor": LLAMA_TEMPLATE})
    (tmp_path / "made.json").write_text(files.definition)
    assert load_tokenizer(tmp_path / "made.json").prefix == (1,)


def test_a_tokenizer_json_keeps_its_bytes(tmp_path: Path) -> None:
    text = json.dumps(DEFINITION, indent=3)
    (tmp_path / "tokenizer.json").write_text(text)
    found = read_tokenizer(tmp_path, 16)
    assert found is not None
    assert found.definition == text


def pair(folder: Path, config: Mapping[str, Any], added: Mapping[str, Any] | None = None) -> TokenizerFiles:
    vocab = {letter: number for number, letter in enumerate([*BYTES, "th", "Ġth"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nĠ th\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if added is not None:
        (folder / "added_tokens.json").write_text(json.dumps(added))
    found = read_tokenizer(folder, 16)
    assert found is not None
    return found


def test_two_files_of_qwen2_are_split_as_qwen2_splits(tmp_path: Path) -> None:
    decoder = {"33": {"content": "<|im_start|>", "special": True}}
    files = pair(
        tmp_path,
        {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder},
        {"<|endoftext|>": 32},
    )
    (tmp_path / "made.json").write_text(files.definition)
    made = load_tokenizer(tmp_path / "made.json")
    assert made.control_ids == {32, 33}
    values = json.loads(files.definition)
    assert values["normalizer"] == {"type": "NFC"}
    text = "the 'the' th..\n"
    assert made.decode(made.encode(text)) == text
    plain = json.loads(pair(tmp_path, {"tokenizer_class": "GPT2Tokenizer"}, {}).definition)
    assert plain["normalizer"] is None
    assert plain["added_tokens"] == []


def test_two_files_of_gpt2_may_ask_for_a_space_first(tmp_path: Path) -> None:
    files = pair(tmp_path, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True})
    (tmp_path / "made.json").write_text(files.definition)
    assert load_tokenizer(tmp_path / "made.json").encode("th") == [len(BYTES) + 1]


FIRST: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "asked for": ({"add_bos_token": True, "bos_token": {"content": "<s>"}}, (32,)),
    "declined": ({"add_bos_token": False, "bos_token": "<s>"}, ()),
    "not said": ({"bos_token": "<s>"}, ()),
    "no such token": ({"add_bos_token": True}, ()),
    "unknown token": ({"add_bos_token": True, "bos_token": "<begin>"}, ()),
}


@pytest.mark.parametrize("case", FIRST)
def test_two_files_get_the_first_token_that_add_bos_token_says(tmp_path: Path, case: str) -> None:
    config, expected = FIRST[case]
    (tmp_path / "made.json").write_text(pair(tmp_path, config, {"<s>": 32}).definition)
    assert load_tokenizer(tmp_path / "made.json").prefix == expected


def test_two_files_of_an_unknown_class_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="of the class 'RobertaTokenizer'; known are GPT2Tokenizer"):
        pair(tmp_path, {"tokenizer_class": "RobertaTokenizer"})


@pytest.mark.parametrize(
    ("added", "message"), [({"x": 99}, "does not follow"), ({"x": "1"}, "no whole number")]
)
def test_added_tokens_of_impossible_ids_are_refused(
    tmp_path: Path, added: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        pair(tmp_path, {}, added)
