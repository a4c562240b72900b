"""Options of an export that contradict each other: a usage error, before anything is loaded.

    refuse_misuse({"precision": "fp32", "block_size": 64, ...})
    # Usage: ... Error: --block-size is 64 and the weights stay fp32; choose precision int8 or int4.

The library says ``block_size``, which is what a call has; whoever typed ``--block-size`` reads that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import click

from gpt_onnx.errors import ConfigError


def as_typed(message: str, names: Iterable[str]) -> str:
    """Return a message with the names of options as they are typed.

    A name of one word is one only where the sentence begins with it: "check" is a word like others, too.
    """
    for name in names:
        typed = f"--{name.replace('_', '-')}"
        place = rf"(?<![\w-]){name}(?!\w)" if "_" in name else rf"^{name}(?= is )"
        message = re.sub(place, typed, message)
    return message


def refuse_misuse(options: Mapping[str, Any]) -> None:
    """Refuse values of options that no source could do anything with.

    Raises:
        UsageError: naming the option.
    """
    from gpt_onnx.export.options import options_of

    try:
        options_of(options)
    except ConfigError as exc:
        raise click.UsageError(as_typed(str(exc), options)) from exc
