"""A table of names to be filled in: ``export SOURCE --dry-run`` prints one where names are not known.

    "stage{layer}.mix.weight" = "?"    # (64, 64) x 2: h.{layer}.attn.c_proj.weight?

``names_file.read_names`` reads it once it is filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpt_onnx.checkpoint.names import Name, places_in
from gpt_onnx.checkpoint.names_file import OPEN
from gpt_onnx.checkpoint.patterns import Group
from gpt_onnx.errors import CheckpointError

HEADER = """\
# The names of {}: on the left stand yours, on the right ours. Put ours in for each "?", and
# move a pattern that is no weight, such as a mask, into ignore. {{layer}} and {{head}} stand for numbers.
# Where a matrix is stored as the transpose of ours, write
# {{ to = "h.{{layer}}.mlp.c_fc.weight", transposed = true }}. attn.c_attn is all queries, then all keys,
# then all values, as most programs split it; attn.qkv_by_head is those of one head after another.
# Then give this file with --names.
"""


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\U{ord(letter):08X}"


def quoted(text: str) -> str:
    """Return a text as TOML writes it; what is not printable, as a number."""
    return f'"{"".join(map(_escaped, text))}"'


def _can_be_told(name: str) -> bool:
    """Whether a table can hold a name; one with other braces, or with a lone surrogate, it cannot."""
    try:
        places_in(name)
        name.encode("utf-8")
    except (CheckpointError, UnicodeError):
        return False
    return True


def _open_line(group: Group, likely: Sequence[str]) -> str:
    times = f" x {group.count}" if group.count > 1 else ""
    shape = f"({', '.join(map(str, group.shape))})"
    offers = f"{' or '.join(likely)}?" if likely else "no weight of ours is like it; ignore?"
    line = f'{quoted(group.name)} = "{OPEN}"    # {shape}{times}: {offers}'
    return line if _can_be_told(group.name) else f"# {line} A table cannot hold this name."


def _known_line(name: Name) -> str:
    ours = quoted(name.ours)
    return f"{quoted(name.theirs)} = " + (
        f"{{ to = {ours}, transposed = true }}" if name.transposed else ours
    )


def sheet(
    path: Path, lines: Iterable[tuple[Group, Sequence[str]]], known: Iterable[Name], ignored: Iterable[str]
) -> str:
    """Return the text of a table.

    Args:
        path: What the names are of.
        lines: The open patterns, and what each may be.
        known: Lines that are settled.
        ignored: Patterns that are no weights by the user's own table.
    """
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in path.name)
    text = [HEADER.format(name), f"ignore = [{', '.join(map(quoted, ignored))}]", "", "[names]"]
    text += [_open_line(group, likely) for group, likely in lines]
    if settled := [_known_line(line) for line in known]:
        text += ["", "# What is known already; of these, lines for usual words can be left away.", *settled]
    return "\n".join(text) + "\n"
