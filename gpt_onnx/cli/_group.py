"""The group of commands, and what turns an exception into a sentence and an exit code."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from gpt_onnx import __version__
from gpt_onnx.cli._console import leave_pipe
from gpt_onnx.cli._streams import drop, is_broken, one_line, open_closed, say, take_every_name
from gpt_onnx.errors import GptOnnxError
from gpt_onnx.extras import missing_extra

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Make a bundle": ("export", "verify", "inspect"),
    "Run it": ("generate", "eval", "bench", "web"),
    "Train": ("train", "convert"),
}


HELP = "NoArgsIsHelpError"
"""What click 8.2 and later raise to print a help text."""


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
    if quiet or verbose:  # otherwise Python itself writes a warning's message on stderr, and no more
        import logging

        level = logging.ERROR if quiet else max(logging.WARNING - 10 * verbose, logging.DEBUG)
        logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)


def _system_error(exc: OSError) -> str:
    reason = exc.strerror or str(exc)
    if exc.filename is not None:
        return f"{exc.filename}: {reason}."
    return (
        f"the answer or a file could not be written: {reason}; see where stdout goes, and that there is room."
    )


def _sentence(exc: Exception) -> str:
    """Return what to say about an error.

    Raises:
        Exception: ``exc`` itself, if it is a fault of this program.
    """
    if isinstance(exc, GptOnnxError):
        return str(exc) if exc.has_lists else one_line(str(exc))
    if isinstance(exc, OSError):
        return one_line(_system_error(exc))
    if isinstance(exc, MemoryError):
        return "the memory does not suffice for this; give it less, or run it on a larger machine."
    message = missing_extra(exc) if isinstance(exc, ImportError) else None
    if message is None:
        raise exc
    return message


def _told(exc: Exception) -> int:
    """Say what went wrong on stderr and return the exit code."""
    if isinstance(exc, click.ClickException):
        if type(exc).__name__ != HELP:
            vars(exc).update(message=one_line(exc.message))
        with contextlib.suppress(OSError):
            exc.show()
        return exc.exit_code
    say(f"Error: {_sentence(exc)}")
    return getattr(exc, "exit_code", GptOnnxError.exit_code)


def run(args: list[str] | None, interrupted: Callable[[], bool], **extra: Any) -> int:
    """Run the command line and return its exit code.

    Args:
        args: the arguments; None: those of the process.
        interrupted: whether a signal came to end it, whatever became of its KeyboardInterrupt.
        **extra: for click.

    Raises:
        KeyboardInterrupt: after such a signal.
    """
    open_closed()
    take_every_name()
    try:
        code = cli.main(args, prog_name="gpt-onnx", standalone_mode=False, **extra)
        sys.stdout.flush()
    except click.Abort as exc:
        raise KeyboardInterrupt from exc
    except BrokenPipeError:
        leave_pipe()
    except Exception as exc:
        if interrupted():
            raise KeyboardInterrupt from exc
        code = _told(exc)
    for stream in (sys.stdout, sys.stderr):
        if is_broken(stream):
            drop(stream)
    return code if isinstance(code, int) else 0
