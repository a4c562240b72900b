"""The group of commands, and what turns an exception into a sentence and an exit code."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from gpt_onnx import __version__
from gpt_onnx.cli._console import INTERRUPTED, leave_pipe
from gpt_onnx.cli._extras import missing_extra
from gpt_onnx.errors import GptOnnxError

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Make a bundle": ("export", "verify", "inspect"),
    "Run it": ("generate", "bench"),
    "Help": ("train",),
}


class LazyGroup(click.Group):
    """A group whose commands live in ``gpt_onnx.cli.<name>`` and are imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of SECTIONS."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"gpt_onnx.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, each with its first sentence."""
        for title, names in SECTIONS.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            rows = [
                (name, command.get_short_help_str(limit=80)) for name, command in commands.items() if command
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'gpt-onnx COMMAND -h' tells the options of a command.",
)
@click.version_option(__version__, prog_name="gpt-onnx")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but answers and errors.")
@click.option("-v", "--verbose", count=True, help="Say more; twice: everything.")
def cli(quiet: bool, verbose: int) -> None:
    """Take a GPT from PyTorch to ONNX, check it with numbers, and run it without PyTorch."""
    level = logging.ERROR if quiet else max(logging.WARNING - 10 * verbose, logging.DEBUG)
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)


def main(args: list[str] | None = None, **extra: Any) -> NoReturn:
    """Run the command line and exit."""
    try:
        code = cli.main(args, prog_name="gpt-onnx", standalone_mode=False, **extra)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted; nothing was left half-written.", INTERRUPTED)
    except BrokenPipeError:
        leave_pipe()
    except GptOnnxError as exc:
        _fail(str(exc), exc.exit_code)
    except ImportError as exc:
        message = missing_extra(exc)
        if message is None:
            raise
        _fail(message, GptOnnxError.exit_code)
