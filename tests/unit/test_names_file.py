"""Tables of names in TOML files: what is read, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt_onnx.checkpoint.names import Name, Naming
from gpt_onnx.checkpoint.names_file import read_names
from gpt_onnx.errors import InputError

LINE = '[names]\n"a" = "wte.weight"\n'


def _file(folder: Path, text: str) -> Path:
    path = folder / "names.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_of_both_forms_are_read_in_their_order(tmp_path: Path) -> None:
    text = """
ignore = ["blocks.{layer}.mask"]
[names]
"tok.weight" = "wte.weight"
"blocks.{layer}.heads.{head}.wq.weight" = "h.{layer}.attn.q.{head}.weight"
"blocks.{layer}.up" = { to = "h.{layer}.mlp.c_fc.weight", transposed = true }
"blocks.{layer}.down" = { to = "h.{layer}.mlp.c_proj.weight" }
"""
    assert read_names(_file(tmp_path, text)) == Naming(
        (
            Name("tok.weight", "wte.weight"),
            Name("blocks.{layer}.heads.{head}.wq.weight", "h.{layer}.attn.q.{head}.weight"),
            Name("blocks.{layer}.up", "h.{layer}.mlp.c_fc.weight", transposed=True),
            Name("blocks.{layer}.down", "h.{layer}.mlp.c_proj.weight"),
        ),
        ("blocks.{layer}.mask",),
    )


REFUSED = {
    "": r"there is no table \[names\]; it has lines such as",
    "names = 3": r"there is no table \[names\]",
    "[names]": r"the table \[names\] is empty; it has lines such as",
    "ignore = []\n[names]": r"the table \[names\] is empty",
    LINE + "'b.{layer}' = '?'\n'c' = { to = '?' }": r'still holds "\?" for b\.\{layer\}, c; put in our name',
    "ignored = []\n" + LINE: "the unknown key 'ignored'; known are names, ignore",
    "[names]\nwte.weight = 'wte.weight'": "'wte' is a table without 'to'; write a name with dots in quotes",
    "[names]\n'a' = 3": "'a' names a int",
    "[names]\n'a' = { to = [1] }": "'a' names a list",
    "[names]\n'a' = { to = 'wte.weight', turned = true }": "'a' has the unknown key 'turned'",
    "[names]\n'a' = { to = 'wte.weight', transposed = 1 }": "'a' has transposed = 1; it must be true",
    "[names]\n'a.{block}' = 'wte.weight'": r"the place \{block\}; known are \{layer\} and \{head\}",
    "[names]\n'a.{layer}' = 'wte.weight'": r"\{layer\} on one side alone",
    "[names]\n'a' = 'wte'": "'wte' is no name of a GPT's weight; the nearest are wte.weight",
    "ignore = 'a'\n" + LINE: "ignore must be a list of patterns",
    "ignore = [3]\n" + LINE: "ignore must be a list of patterns",
    "ignore = ['{a}']\n" + LINE: r"the place \{a\}",
    "[names": "could not be read as TOML",
    LINE + "'a' = 'ln_f.weight'": "could not be read as TOML",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_meant_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(InputError, match=REFUSED[text]) as caught:
        read_names(path)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).endswith(".")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml could not be read: No such file"):
        read_names(tmp_path / "absent.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="could not be read as TOML"):
        read_names(tmp_path / "bytes.toml")


def test_deeply_nested_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="could not be read as TOML"):
        read_names(_file(tmp_path, "a = " + "[" * 100_000))


def test_the_table_in_the_documentation_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "own-model.md").read_text(encoding="utf-8")
    table = text.partition("[names]")[2].partition("```")[0]
    assert len(read_names(_file(tmp_path, f"[names]{table}")).names) > 5
