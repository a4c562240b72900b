"""A byte order mark, which some editors put before UTF-8, is no text of any file that a user writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx._user_text import read_toml, without_mark
from gpt_onnx.checkpoint.names_file import read_names
from gpt_onnx.checkpoint.questions import read_answers
from gpt_onnx.cli._prompts import read_prompt
from gpt_onnx.config import read_json_object
from gpt_onnx.train.corpus import read_corpus

CASES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a prompt": (lambda path: read_prompt(str(path)), "Once upon a time"),
    "a text to train on": (lambda path: read_corpus([path]).documents, "Once upon a time"),
    "a table of names": (read_names, '[names]\n"a" = "wte.weight"\n'),
    "answers": (read_answers, 'activation = "gelu"\n'),
    "a configuration": (read_json_object, '{"n_embd": 16}'),
    "any TOML": (read_toml, "a = 1\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_says_the_same_with_a_mark_and_without(case: str, tmp_path: Path) -> None:
    reader, text = CASES[case]
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    plain = reader(path)
    path.write_text(text, encoding="utf-8-sig")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    assert reader(path) == plain


def test_only_one_mark_at_the_start_is_taken_away() -> None:
    assert without_mark("\ufeffa\ufeff") == "a\ufeff"
    assert without_mark("\ufeff\ufeffa") == "\ufeffa"
    assert without_mark("") == ""
