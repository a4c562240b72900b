"""Numbers out of range are misuse, told before anything is loaded: all numbers of all commands."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from gpt_onnx.cli._group import SECTIONS, cli
from gpt_onnx.cli._options import Integer, positive_counts
from gpt_onnx.cli._prompts import token_ids
from gpt_onnx.cli.export import as_number, size_or_dynamic
from gpt_onnx.cli.generate import speculation

HUGE = str(10**19)
NEVER = ("nan", "inf", "-inf", "1e999", "x", "", "-1", "0x10", "1_0", "٣")
"""What no number of any option is."""

COMMANDS: dict[str, list[str]] = {
    "export": ["absent", "--precision", "int4"],
    "verify": ["absent"],
    "generate": ["absent", "-p", "a"],
    "eval": ["absent", "--text", "absent"],
    "bench": ["absent"],
    "web": ["absent"],
    "train": ["absent", "-o", "absent"],
}
"""A command line that is refused with exit code 1, as nothing of what it names is there."""

BEYOND: dict[str, dict[str, tuple[str, ...]]] = {
    "export": {
        "--seq-len": ("0", str(2**20 + 1), "1"),
        "--batch-size": ("0", str(2**16 + 1)),
        "--opset": ("16", "22"),
        "--block-size": ("0", "8", "48"),
        "--accuracy-level": ("1", "5"),
        "--max-kl": ("0", "-0.5"),
    },
    "verify": {"--threads": ("0", HUGE)},
    "generate": {
        "--new-tokens": (HUGE * 2,),
        "--prompt-ids": ("1,-2", HUGE),
        "--temperature": ("1e7", "-0.1"),
        "--top-k": (HUGE * 2,),
        "--top-p": ("1.1", "-0.1"),
        "--min-p": ("1.1", "-0.1"),
        "--repetition-penalty": ("0", "1e7", "1e-9", "-2"),
        "--seed": (str(2**63),),
        "--threads": ("0", HUGE),
        "--speculate": ("32", "1.5"),
    },
    "eval": {"--max-tokens": ("1", "0"), "--window": ("1", "0"), "--threads": ("0", HUGE)},
    "bench": {
        "--prompt-tokens": ("0", "128,0"),
        "--new-tokens": ("1", "65537"),
        "--batch-size": ("0", "1025"),
        "--repetitions": ("0", "10001"),
        "--threads": ("0", HUGE),
    },
    "web": {"--port": ("65536", HUGE)},
    "train": {
        "--held-out": ("0", "1", "1.5"),
        "--steps": ("0",),
        "--tokens": ("0",),
        "--epochs": ("0",),
        "--batch-size": ("0",),
        "--learning-rate": ("0",),
        "--warmup": ("1.1",),
        "--weight-decay": ("1.1",),
        "--gradient-clip": ("0",),
        "--dropout": ("1",),
        "--validate-every": ("0",),
        "--seed": (str(2**63),),
        "--threads": ("0", HUGE),
    },
}
"""Of each number: values that are numbers, and out of its range."""


def is_number(option: click.Parameter) -> bool:
    """Whether an option takes numbers, by its type."""
    kind = option.type
    function = getattr(kind, "func", None)
    return (
        isinstance(kind, click.types.IntParamType | click.types.FloatParamType | Integer)
        or function in (positive_counts, token_ids, size_or_dynamic, speculation)
        or option.callback is as_number
    )


def numbers_of(name: str) -> Iterator[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and is_number(option):
            yield next(spelled for spelled in option.opts if spelled.startswith("--"))


def test_every_number_of_every_command_is_in_the_table() -> None:
    names = [name for section in SECTIONS.values() for name in section]
    found = {name: set(numbers_of(name)) for name in names}
    assert {name: numbers for name, numbers in found.items() if numbers} == {
        name: set(numbers) for name, numbers in BEYOND.items()
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_without_a_number_what_is_named_is_looked_for(name: str) -> None:
    assert getattr(CliRunner().invoke(cli, [name, *COMMANDS[name]]).exception, "exit_code", None) == 1


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in BEYOND for option in BEYOND[name]])
def test_a_number_out_of_range_is_misuse(name: str, option: str) -> None:
    for value in (*NEVER, *BEYOND[name][option]):
        arguments = [name, *COMMANDS[name], f"{option}={value}"]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 2, (arguments, result.output, result.exception)
        assert "Usage:" in result.stderr
