"""A tokenizer.json that is not trusted: what is refused, how, and that nothing hangs or panics."""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, pre_tokenizers

from gpt_onnx.errors import BundleError, InputError
from gpt_onnx.runtime import tokenizer as module
from gpt_onnx.runtime._tokenizer_parts import KNOWN_PATTERNS, is_pattern
from gpt_onnx.runtime.tokenizer import load_tokenizer
from tests.made_tokenizers import EOT, PIECES, TRAINED, WORDS, Edit, load


def long_chain(values: dict[str, Any]) -> None:
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    values["normalizer"] = {"type": "Sequence", "normalizers": [double] * 7}


def nested_chain(values: dict[str, Any]) -> None:
    part: dict[str, Any] = {"type": "NFC"}
    for _ in range(5):
        part = {"type": "Sequence", "normalizers": [part]}
    values["normalizer"] = part


def backtracking(values: dict[str, Any]) -> None:
    pattern = {"Regex": "(a+)+b"}
    values["pre_tokenizer"] = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


REFUSED: dict[str, tuple[Edit, str]] = {
    "growing chain": (long_chain, "multiplies a text by more than 64"),
    "nested chain": (nested_chain, "deeper than 3"),
    "backtracking pattern": (backtracking, "Split has pattern"),
    "empty pattern": (
        lambda v: v.update(normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "a"}),
        "Replace has pattern",
    ),
    "unknown normalizer": (lambda v: v.update(normalizer={"type": "Precompiled"}), "'Precompiled'"),
    "unknown decoder": (lambda v: v.update(decoder={"type": "CTC"}), "'CTC'"),
    "decoder that is no object": (lambda v: v.update(decoder=[1]), "decoder is a list"),
    "unknown post-processor": (
        lambda v: v.update(post_processor={"type": "X"}),
        "post-processor 'X' is not accepted",
    ),
    "malformed template": (
        lambda v: v.update(post_processor={"type": "TemplateProcessing"}),
        "TemplateProcessing is malformed",
    ),
    "template of unknown token": (
        lambda v: v.update(
            post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "xyzzy"}}]}
        ),
        "which the vocabulary lacks",
    ),
    "unknown field": (lambda v: v["pre_tokenizer"].update(path="/etc"), "unknown field 'path'"),
    "unknown model": (lambda v: v["model"].update(type="Neural"), "the model is 'Neural'"),
    "no model": (lambda v: v.pop("model"), "the model is 'None'"),
    "no vocabulary": (lambda v: v["model"].pop("vocab"), "no vocab"),
    "empty vocabulary": (
        lambda v: v.update(model={"type": "BPE", "vocab": {}, "merges": []}, added_tokens=[]),
        "no tokens",
    ),
    "negative id": (lambda v: v["model"]["vocab"].update(zz=-1), "the id -1 is repeated or not in"),
    "huge id": (lambda v: v["model"]["vocab"].update(zz=2**40), "is repeated or not in"),
    "repeated id": (lambda v: v["model"]["vocab"].update(zz=5), "the id 5 is repeated"),
    "float id": (lambda v: v["model"]["vocab"].update(zz=5.5), "the id 5.5"),
    "merge of unknown tokens": (lambda v: v["model"]["merges"].append(["qq", "zz"]), "out of vocabulary"),
    "malformed merge": (lambda v: v["model"]["merges"].append("a b c"), "has merges"),
    "merge without the prefix": (
        lambda v: v["model"].update(continuing_subword_prefix="####"),
        "without '####'",
    ),
    "half a surrogate pair": (
        lambda v: v["model"]["vocab"].update({"\ud800": 999}),
        "refused by the tokenizers",
    ),
    "replacement without a pattern": (
        lambda v: v.update(normalizer={"type": "Replace", "content": "x"}),
        "refused by the tokenizers library",
    ),
    "dropout": (lambda v: v["model"].update(dropout=0.5), "has dropout = '0.5'"),
    "added token elsewhere": (
        lambda v: v["added_tokens"][0].update(id=7),
        "its place in the vocabulary is 0",
    ),
    "added token without content": (
        lambda v: v["added_tokens"][0].pop("content"),
        "lacks an id or a content",
    ),
    "empty added token": (lambda v: v["added_tokens"][0].update(content=""), "has content = ''"),
    "added tokens that are no list": (
        lambda v: v.update(added_tokens={"a": 1}),
        "added_tokens is not a list",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_parts_that_are_not_accepted_are_named(tmp_path: Path, name: str) -> None:
    edit, message = REFUSED[name]
    with pytest.raises(BundleError, match=message):
        load(tmp_path, TRAINED, edit)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of a JSON value's parts; of long lists and objects only the first few."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items)[:8]:
        yield (*path, key)
        yield from places(part, (*path, key))


JUNK: list[Any] = [None, True, 0, -1, 2**32, 2**70, 1.5, math.nan, "", "a", "▁", "\ud800", "x" * 5000]
JUNK += [[], {}, [[]], {"type": "ByteLevel"}, {"String": "a"}, {"Regex": r"\s+"}, ["a", "b"]]


def test_mutated_files_are_refused_or_usable(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    generator, usable = random.Random(1), 0
    for _ in range(600):
        values = copy.deepcopy(generator.choice([TRAINED, WORDS, PIECES]))
        *path, last = generator.choice(list(places(values)))
        target: Any = values
        for key in path:
            target = target[key]
        target[last] = copy.deepcopy(generator.choice(JUNK))
        try:
            tokenizer = load(tmp_path, values)
            usable += 1
            tokenizer.decode(tokenizer.encode(f"hi é😀 {EOT}"))
        except (BundleError, InputError):
            continue
    assert 20 < usable < 400
    assert capfd.readouterr().err == ""  # nothing panicked


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not UTF-8 JSON"),
        (b"\xff\xfe", "is not UTF-8 JSON"),
        (b"[]", "holds a list"),
        (b"[" * 100_000, "is not UTF-8 JSON"),
        (b"[" * 2_000_000, "2000000 lists and objects"),
        (b'{"model": {"vocab": ' + b"9" * 5000 + b"}}", "is not UTF-8 JSON"),
    ],
)
def test_a_file_that_is_no_honest_json_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(BundleError, match=message):
        load_tokenizer(path)


def test_a_file_above_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE", 1000)
    with pytest.raises(BundleError, match="larger than 1000 bytes"):
        load(tmp_path, TRAINED)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="could not be read: No such file"):
        load_tokenizer(tmp_path / "tokenizer.json")


def test_a_panic_of_the_rust_side_is_an_error_and_an_interrupt_stays_one() -> None:
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(BundleError, match="loading: boom"), module._rust_errors(BundleError, "loading"):
        raise panic("boom")
    with pytest.raises(KeyboardInterrupt), module._rust_errors(BundleError, "loading"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("pattern", [r"\s+", r"\p{N}{1,3}", r"\d|[^\s\p{L}]+| ", r"[\r\n]+"])
def test_simple_patterns_are_accepted(pattern: str) -> None:
    assert is_pattern({"Regex": pattern})


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "a*a*b", r"(?=x)", r"\s+\s+\s+x", ".*", "", r"(a|a)+", r"\1", "a++"]
)
def test_patterns_that_might_backtrack_are_not(pattern: str) -> None:
    assert not is_pattern({"Regex": pattern})


@pytest.mark.parametrize("pattern", sorted(KNOWN_PATTERNS))
def test_published_patterns_take_time_linear_in_the_text(pattern: str) -> None:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    for unit in (" ", "a", "A", "é", " \n", "\n ", "'", "!", "あ", "aA", "\u0300"):
        text = unit * 60_000 + "x"
        start = time.perf_counter()
        assert "".join(piece for piece, _ in split.pre_tokenize_str(text)) == text
        assert time.perf_counter() - start < 4  # quadratic time would be far more
