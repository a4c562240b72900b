"""Help texts: the same on a terminal and in docs/command-line.md, and nothing of their markup in them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gpt_onnx.cli._group import SECTIONS, cli

COMMANDS = [name for names in SECTIONS.values() for name in names]
SCRIPT = Path(__file__).parents[2] / "scripts" / "write_cli_docs.py"
EXAMPLES = {
    "verify": "  gpt-onnx verify bundle\n  gpt-onnx verify bundle --against models/sotu\n",
    "generate": '  gpt-onnx generate bundle -p "My fellow citizens," -n 100 -s 1\n  echo ',
}


@pytest.fixture(scope="module")
def docs() -> Any:
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("write_cli_docs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_shows_markup(name: str) -> None:
    text = CliRunner().invoke(cli, [name, "-h"]).output
    assert text.startswith("Usage: ")
    assert "\\b" not in text
    assert "\b" not in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_stand_on_lines_of_their_own_in_help_and_on_the_page(name: str, docs: Any) -> None:
    assert EXAMPLES[name] in CliRunner().invoke(cli, [name, "-h"]).output
    assert EXAMPLES[name] in docs.page()


def test_the_page_is_plain_text(docs: Any) -> None:
    page = docs.page()
    assert "\\b" not in page
    assert all(character == "\n" or character.isprintable() for character in page)
    assert click.unstyle(page) == page
