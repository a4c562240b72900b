"""A table of names from a TOML file (``--names FILE``).

    ignore = ["blocks.{layer}.attn.mask"]

    [names]
    "tok.weight" = "wte.weight"
    "blocks.{layer}.heads.{head}.wq.weight" = "h.{layer}.attn.q.{head}.weight"
    "blocks.{layer}.mlp.up.weight" = { to = "h.{layer}.mlp.c_fc.weight", transposed = true }

On the left stand the names of the source, on the right ours (gpt_onnx.checkpoint.names); {layer} and {head}
stand for a number each. What the table does not name goes by the usual words, where it has them; a table that
only ignores needs no [names].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpt_onnx._user_text import read_toml
from gpt_onnx.checkpoint.names import Name, Naming, places_in
from gpt_onnx.checkpoint.patterns import LONGEST
from gpt_onnx.errors import CheckpointError, InputError

KEYS = ("names", "ignore")
LINE_KEYS = ("to", "transposed")
MAX_BYTES = 10_000_000
OPEN = "?"  # what a table that is to be filled in has for a name of ours
TOLD = 8  # open lines that are told
EXAMPLE = '"blocks.{layer}.mlp.up.weight" = "h.{layer}.mlp.c_fc.weight"'


def _parsed(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(
                f"{path} has {path.stat().st_size} bytes; a table of names has at most {MAX_BYTES}."
            )
        return read_toml(path)
    except OSError as exc:
        raise InputError(f"{path} could not be read: {exc.strerror or exc}.") from exc
    except (ValueError, RecursionError) as exc:
        raise InputError(f"{path} could not be read as TOML: {exc}.") from exc


def _refuse_unknown(values: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    if unknown := next((key for key in values if key not in known), None):
        raise InputError(f"{what} has the unknown key {unknown[:60]!r}; known are {', '.join(known)}.")


def _line(theirs: str, value: Any) -> Name:
    """Read one line of [names].

    Raises:
        InputError, CheckpointError: if it is none.
    """
    if isinstance(value, str):
        return Name(theirs, value)
    if isinstance(value, dict) and "to" not in value:
        raise InputError(f"{theirs!r} is a table without 'to'; write a name with dots in quotes: {EXAMPLE}.")
    if not isinstance(value, dict) or not isinstance(value["to"], str):
        raise InputError(f"{theirs!r} names a {_kind(value)}; it must name a weight: {EXAMPLE}.")
    _refuse_unknown(value, LINE_KEYS, f"{theirs!r}")
    turned = value.get("transposed", False)
    if type(turned) is not bool:
        raise InputError(f"{theirs!r} has transposed = {str(turned)[:40]}; it must be true or false.")
    return Name(theirs, value["to"], turned)


def _kind(value: Any) -> str:
    return type(value["to"] if isinstance(value, dict) else value).__name__


def _ignored(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError('ignore must be a list of patterns, such as ["blocks.{layer}.attn.mask"].')
    for text in value:
        places_in(text)
    return tuple(value)


def _refuse_open(names: dict[str, Any]) -> None:
    """Refuse lines that are not filled in.

    Raises:
        InputError: naming them.
    """
    lines = [
        name for name, value in names.items() if OPEN in (value, isinstance(value, dict) and value.get("to"))
    ]
    if lines:
        told = ", ".join(name[:LONGEST] for name in lines[:TOLD])
        more = f" and {len(lines) - TOLD} more" if len(lines) > TOLD else ""
        raise InputError(
            f'the table still holds "{OPEN}" for {told}{more}; put in our name of each, or move it into '
            "ignore."
        )


def _naming(values: dict[str, Any]) -> Naming:
    _refuse_unknown(values, KEYS, "the table")
    names, ignored = values.get("names", {}), _ignored(values.get("ignore", []))
    if not isinstance(names, dict) or ("names" not in values and not ignored):
        raise InputError(f"there is no table [names]; it has lines such as {EXAMPLE}.")
    if not (names or ignored):
        raise InputError(f"the table [names] is empty; it has lines such as {EXAMPLE}.")
    _refuse_open(names)
    return Naming(tuple(_line(theirs, value) for theirs, value in names.items()), ignored)


def read_names(path: Path) -> Naming:
    """Read a table of names.

    Raises:
        InputError: naming the file and the line that cannot be understood.
    """
    values = _parsed(path)
    try:
        return _naming(values)
    except (InputError, CheckpointError) as exc:
        raise InputError(f"{path}: {exc}") from exc
