"""Write docs/command-line.md from the commands' own --help; with --check, compare instead.

python scripts/write_cli_docs.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from gpt_onnx.cli._group import SECTIONS, cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
WIDTH = 100
INTRODUCTION = """\
# Command line

Written by `scripts/write_cli_docs.py` from the commands' own `--help`; do not edit.

Answers go to stdout, everything else to stderr; where stderr is no terminal, what takes more than some
seconds says each stage in one line, unless `-q` is given. Exit codes: 0 done, 1 a clear error, 2 usage,
3 the numbers differ, and 128 and the signal's number where one ended it (130 after Ctrl-C, 143 after
SIGTERM); nothing is left half-made then.
"""


def sections() -> Iterator[tuple[str, str]]:
    """Yield the title and the help text of the group and of each command."""
    context = click.Context(
        cli, info_name="gpt-onnx", terminal_width=WIDTH, help_option_names=["-h", "--help"]
    )
    yield "gpt-onnx", cli.get_help(context)
    for name in (name for names in SECTIONS.values() for name in names):
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH)
        yield f"gpt-onnx {name}", command.get_help(inner)


def page() -> str:
    """Return the whole page."""
    parts = [f"## {title}\n\n```\n{text}\n```\n" for title, text in sections()]
    return "\n".join([INTRODUCTION, *parts])


def main() -> None:
    """Write the page, or with --check fail if it would change."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/command-line.md is not what --help says; run: make docs")


if __name__ == "__main__":
    main()
