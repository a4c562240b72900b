"""Options that several commands share: one name, one type and one default everywhere.

    @click.command(name="generate")
    @bundle_argument
    @provider_option
    @threads_option
    def command(bundle: Path, provider: str, threads: int | None) -> None: ...

No short option has two meanings: ``-p`` prompt, ``-n`` new tokens, ``-s`` seed, ``-t`` threads, ``-f`` file,
``-o`` output, ``-r`` repetitions. Nothing heavy is imported here.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import click

from gpt_onnx.bundle._names import shorten

MAX_INTEGER = MAX_SEED = 2**63 - 1
LONGEST = len(str(MAX_INTEGER))

_PROVIDER = re.compile(r"auto|cpu|cuda(?::[0-9]{1,3})?")
_DIGITS = re.compile(r"([+-]?)0*([0-9]+)")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def provider_name(value: str) -> str:
    """Return ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` in lower case; anything else is a usage error."""
    name = value.lower()
    if not _PROVIDER.fullmatch(name):
        raise click.BadParameter(f"{shorten(value)} is not a provider; choose auto, cpu, cuda or cuda:N.")
    return name


def integers(value: str, what: str, *, least: int, digits: int) -> tuple[int, ...]:
    """Return the integers of a list such as ``128,512``; anything else is a usage error.

    Args:
        value: The list.
        what: What it is a list of.
        least: The least that each may be.
        digits: How many each may have.
    """
    parts = [part.strip() for part in value.split(",")]
    if not all(re.fullmatch(f"[0-9]{{1,{digits}}}", part) and int(part) >= least for part in parts):
        raise click.BadParameter(
            f"{shorten(value)} is not a list of {what}; give integers from {least} on, of at most {digits} "
            "digits, with commas between them."
        )
    return tuple(int(part) for part in parts)


def positive_counts(value: str | tuple[int, ...]) -> tuple[int, ...]:
    """Return the integers of a list such as ``128,512``; anything else is a usage error."""
    if isinstance(value, tuple):
        return value
    return integers(value, "positive integers", least=1, digits=9)


class Integer(click.IntRange):
    """An integer in a range, in plain digits: not Python's 1_000, nor the digits of other scripts."""

    name = "n"  # of the value, in help texts

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; anything else is a usage error."""
        if isinstance(value, str):
            digits = _DIGITS.fullmatch(value)
            if digits is None:
                self.fail(f"{shorten(value)} is not an integer.", param, ctx)
            if len(digits[2]) > LONGEST or int(digits[2]) > MAX_INTEGER:
                self.fail(self._too_far(value, "small" if digits[1] == "-" else "large"), param, ctx)
        return super().convert(value, param, ctx)

    def _too_far(self, value: str, which: str) -> str:
        least = -MAX_INTEGER if self.min is None else self.min
        most = MAX_INTEGER if self.max is None else self.max
        return f"{shorten(value)} is too {which}; give an integer from {least} to {most}."


class Real(click.FloatRange):
    """A finite number in a range, in plain digits: not Python's ``nan``, ``inf`` or ``1_000.0``."""

    name = "x"  # of the value, in help texts

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; anything else is a usage error."""
        if isinstance(value, str) and not (_DECIMAL.fullmatch(value) and math.isfinite(float(value))):
            self.fail(f"{shorten(value)} is not a finite number.", param, ctx)
        return super().convert(value, param, ctx)


class FolderName(click.Path):
    """The name of a folder; an empty one is a usage error, and not this folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "" or "\0" in str(value):
            self.fail(f"{shorten(value)} names no folder; for this one, write a dot.", param, ctx)
        return super().convert(value, param, ctx)


def _threads(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    """Refuse more threads than this machine can use; the bound is known only when it is asked for."""
    from gpt_onnx.runtime._threads import most_threads

    if value is not None and value > most_threads():
        raise click.BadParameter(f"{value} is more than the {most_threads()} that this machine has use for.")
    return value


def refuse_without_source(**options: object) -> None:
    """Refuse options that describe a source where --against names none: a usage error."""
    for name, value in options.items():
        if value is not None:
            raise click.UsageError(f"--{name} is for the SOURCE of --against; name that, or leave it away.")


FOLDER = FolderName()

bundle_argument = click.argument("bundle", type=FOLDER)

provider_option = click.option(
    "--provider",
    type=provider_name,
    metavar="auto|cpu|cuda[:N]",
    default="auto",
    show_default=True,
    help="Where to run; auto is what the bundle was made for, and there is never a silent fallback.",
)
threads_option = click.option(
    "-t",
    "--threads",
    type=Integer(min=1),
    callback=_threads,
    metavar="N",
    show_default="the cores this process may use",
    help="Threads within an operator.",
)
seed_option = click.option(
    "-s",
    "--seed",
    type=Integer(min=0, max=MAX_SEED),
    metavar="SEED",
    show_default="random, printed on stderr",
    help="Seed of the random numbers.",
)
new_tokens_option = click.option(
    "-n",
    "--new-tokens",
    type=Integer(min=0),
    metavar="N",
    default=128,
    show_default=True,
    help="Most tokens to generate.",
)
repetitions_option = click.option(
    "-r",
    "--repetitions",
    type=Integer(min=1),
    metavar="N",
    default=5,
    show_default=True,
    help="How often each measurement is repeated.",
)
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration (TOML or JSON) of a SOURCE that does not tell its own.",
)
names_option = click.option(
    "--names",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Table (TOML) from SOURCE's names of tensors to ours.",
)
tokenizer_option = click.option(
    "--tokenizer",
    metavar="DIR|FILE|none",
    show_default="the source's own",
    help="Tokenizer to take instead of SOURCE's own.",
)
output_option = click.option(
    "-o",
    "--output",
    type=FOLDER,
    metavar="DIR",
    show_default="SOURCE's name with -onnx",
    help="Directory to write.",
)
overwrite_option = click.option(
    "--overwrite",
    "--force",
    is_flag=True,
    help="Replace an existing output, whole.",
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object on stdout instead of text.",
)
no_hash_option = click.option(
    "--no-hash",
    is_flag=True,
    help="Skip the SHA-256 of the bundle's files; sizes and names are still checked.",
)
store_option = click.option(
    "--store",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    default="fp32",
    show_default=True,
    help="How the checkpoint's weights are stored.",
)
