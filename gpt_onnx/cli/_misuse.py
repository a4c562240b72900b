"""Options that are out of range or contradict each other: a usage error, before anything is loaded.

    with misuse(options):
        ExportOptions(precision="fp32", block_size=64)
    # Usage: ... Error: --block-size is 64 and the weights stay fp32; choose precision int8 or int4.

The library says ``block_size``, which is what a call has; whoever typed ``--block-size`` reads that.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator

import click

from gpt_onnx.errors import ConfigError, InputError


def as_typed(message: str, names: Iterable[str]) -> str:
    """Return a message with the names of options as they are typed.

    A name of one word is one only where the sentence begins with it: "check" is a word like others, too.
    """
    for name in names:
        typed = f"--{name.replace('_', '-')}"
        place = rf"(?<![\w-]){name}(?!\w)" if "_" in name else rf"^{name}(?= is )"
        message = re.sub(place, typed, message)
    return message


@contextlib.contextmanager
def misuse(names: Iterable[str]) -> Iterator[None]:
    """Let what the library refuses in the block be a mistake in the command line.

    Args:
        names: Of the options, as the library has them.

    Raises:
        UsageError: naming the option.
    """
    try:
        yield
    except (ConfigError, InputError) as exc:
        raise click.UsageError(as_typed(str(exc), names)) from exc
